"""C5 on FedSage+: what the embeddings that an owner offers reveal to every owner that answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from secure_fedgraph.attacks.attack import CLIENT, Attack, Blind, Guess, Knowledge
from secure_fedgraph.attacks.neighgen import SLOTS
from secure_fedgraph.models.neighgen.model import FeatureGenerator
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER, Seen

NEIGHBOURS, EMBEDDED_LINKS, MISSING = (
    "features of neighbours",
    "links of embeddings",
    "numbers of missing neighbours",
)


class _Offers(Attack):
    """What all forms of C5 share: each owner's first offer, which every other owner opens.

    The only defence is to make no offer; sealing hides it from the server only. Offers are never summed, so
    :meth:`residual` has nothing to read.
    """

    family = "neighgen"
    adversaries = (SERVER, CLIENT)
    channel = "generator"
    first_rounds = 1
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "sealed messages: sealed, masked, homomorphic, strictest",
        CLIENT: "nothing built; local_dp blurs the answer too",
    }
    about: ClassVar[str]

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """One array for each owner, a row for each embedding of its first offer."""
        known = self.channel in view.public["channels"]
        offers = [*view.uploads(self.channel), *view.delivered(self.channel)] if known else []
        first: dict[str, Seen] = {}
        for seen in sorted(offers, key=lambda seen: seen.exchange):
            if seen.clients[0] not in view.parties:
                first.setdefault(seen.clients[0], seen)
        if not first:
            raise Blind(f"{self.id}: {view.why_unreadable(self.channel)}")
        values = {owner: self._read(view, seen.values) for owner, seen in sorted(first.items())}
        return Guess(self.about, values, {owner: (owner,) for owner in values}, len(first))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Blind: offers are never summed."""
        raise Blind(f"{self.id}: embeddings are read one by one, so no sum of them is left")

    def _read(self, view: View, offer: Mapping[str, np.ndarray]) -> np.ndarray:
        raise NotImplementedError


class EmbeddingDecoder(_Offers):
    """C5: the generator that comes with an embedding is its decoder: it makes the neighbours' features.

    Without noise and dropout, all slots' mean, ``[embeddings, words]``.
    """

    id = "c5-embedding-features"
    title = "features of the neighbours of an owner's nodes, from the embeddings it offers"
    subject = "features of neighbours from offered embeddings"
    summary = "features of the neighbours of an owner's nodes, from its embeddings and generator"
    cost = "one forward pass"
    about = NEIGHBOURS

    def _read(self, view: View, offer: Mapping[str, np.ndarray]) -> np.ndarray:
        hidden = tuple(view.public["settings"]["generator_hidden"])
        z = torch.as_tensor(np.array(offer["z"]), dtype=torch.float32)
        fgen = FeatureGenerator(z.shape[1], int(view.public["schema"]["features"]), SLOTS, hidden, 0.0)
        fgen.load_state_dict(
            {
                name.removeprefix("fgen."): torch.as_tensor(np.array(value), dtype=torch.float32)
                for name, value in offer.items()
                if name.startswith("fgen.")
            }
        )
        fgen.eval()
        with torch.no_grad():
            features: np.ndarray = fgen(z, torch.zeros_like(z)).mean(1).numpy()
        return features


class EmbeddingLinks(_Offers):
    """C5: embeddings that point the same way belong to linked nodes, ``[embeddings, embeddings]``."""

    id = "c5-embedding-links"
    title = "which of an owner's nodes are linked, from the embeddings it offers"
    subject = "links from offered embeddings"
    summary = "links among an owner's nodes, from alike embeddings"
    cost = "one matrix product"
    about = EMBEDDED_LINKS

    def _read(self, view: View, offer: Mapping[str, np.ndarray]) -> np.ndarray:
        z = np.asarray(offer["z"], dtype=np.float64)
        unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
        similarity: np.ndarray = unit @ unit.T
        return similarity


class EmbeddingCounts(_Offers):
    """C5: the counts that come with embeddings, taken for how many neighbours are missing."""

    id = "c5-embedding-counts"
    title = "how many neighbours an owner's nodes miss"
    subject = "numbers of missing neighbours"
    summary = "how many neighbours an owner's nodes miss, from its counts"
    cost = "none"
    about = MISSING

    def _read(self, view: View, offer: Mapping[str, np.ndarray]) -> np.ndarray:
        counts: np.ndarray = np.asarray(offer["counts"]).round().astype(int)
        return counts
