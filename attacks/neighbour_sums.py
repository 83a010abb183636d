"""C6 on FedGCN: the features of a node that is the only term in a sum, as the owner that asked reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import CLIENT, Attack, Blind, Guess, Knowledge
from secure_fedgraph.attacks.sparse_rows import FEATURES
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER, Seen


class NeighbourSums(Attack):
    """C6: a sum with one term is that term: a node's features over the square root of its degree.

    The count that comes with a sum says where that is so. The unknown degree is one factor of the whole row:
    rows are brought to a largest value of 1, which makes words (0 or 1) exact.

    References:
        Yao et al., NeurIPS 2023, section 4, which assumes that sums have several terms.
    """

    id = "c6-neighbour-sums"
    title = "features of single nodes, from sums over a node's neighbours"
    subject = "features from neighbour sums"
    family = "neighbour-sums"
    summary = "features of the only neighbour in a sum, and whose sum it is"
    adversaries: ClassVar[tuple[str, ...]] = (SERVER, CLIENT)
    channel = "neighbour_sums"
    first_rounds = 1
    cost = "none: the row is the answer"
    depends_on = ("training.hops",)
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "sealed messages: masked, homomorphic, strictest",
        CLIENT: "training.hops=0 alone: masks add up owners, not nodes",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of single owners' answers, of one term each."""
        known = self.channel in view.public.get("channels", {})
        seen = [*view.uploads(self.channel), *view.delivered(self.channel)] if known else []
        rows: dict[str, list[np.ndarray]] = {}
        for one in seen:
            if one.clients[0] not in view.parties:
                rows.setdefault(one.clients[0], []).append(_single_terms(one))
        found = {owner: np.concatenate(parts) for owner, parts in rows.items()}
        found = {owner: values for owner, values in sorted(found.items()) if len(values)}
        if not found:
            why = "no sum in it has a single term" if rows else view.why_unreadable(self.channel)
            raise Blind(f"{self.id}: {why}")
        return Guess(FEATURES, found, {owner: (owner,) for owner in found}, len(seen))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of the opened sums over all other owners, of one term each."""
        sums = self.opened_sums(view)
        values = np.concatenate([_single_terms(seen) for seen in sums])
        if not len(values):
            raise Blind(f"{self.id}: no sum that was opened has a single term")
        owners = tuple(sorted({name for seen in sums for name in seen.clients}))
        return Guess(FEATURES, {ALL: values}, {ALL: owners}, len(sums))


def _single_terms(seen: Seen) -> np.ndarray:
    """The rows of sums with one term, ``[rows, features]``."""
    counts, sums = (np.asarray(seen.values[key], dtype=np.float64) for key in ("counts", "sums"))
    unit = counts[counts > 0].min(initial=np.inf)  # what one term counts: the least that any sum holds
    rows: np.ndarray = sums[np.abs(counts - unit) < unit / 4] if np.isfinite(unit) else sums[:0]
    largest = np.abs(rows).max(axis=1, initial=0.0)
    rows = rows[largest > 0] / largest[largest > 0, None]
    return rows.astype(np.float32)
