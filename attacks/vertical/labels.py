"""D5 on GLASU: the labels of a batch, from the gradient at the last aggregated layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.cluster.vq import kmeans2

from secure_fedgraph.attacks.attack import LAST, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.vertical.lists import NODES, TRAINING, WHICH, centres_of
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER, Seen

NODE_LABELS, CLUSTERS = "node labels", "label clusters"
HEADS = "heads of the label holders"
_SENT, _SUMMED = "gradient", "backward"
_FORWARD = ("hidden",)
_ONE_HOLDER = Control(
    "labels at one owner",
    {
        "rounds": 1,
        "algorithm": "glasu-one-label-holder",
        "training.backward": "local",
        "training.sampler": "public",
        "split.labels": "one",
    },
)


@dataclass(frozen=True)
class Rows:
    """Gradients, a row a node that a batch had, batches below each other.

    Args:
        nodes: ``[rows]``.
        gradients: ``[rows, width]``.
    """

    nodes: np.ndarray = field(repr=False)
    gradients: np.ndarray = field(repr=False)


class _Gradients(Attack):
    """What both forms of D5 share: which messages they read, and that they read the first round's.

    The loss is cross entropy of ``W_c h``, so a row is ``(softmax - onehot) W_c / n``: it points away from
    the label's row of the classifier. Where one owner holds the labels its gradient goes to all others. With
    ``backward="server"`` each owner's goes up, and all owners have the labels: then only the server
    learns something.
    """

    family = "glasu"
    adversaries = (SERVER, LAST)
    channel = _SENT
    also_reads: ClassVar[tuple[str, ...]] = (_SUMMED, *_FORWARD)
    first_rounds = 1
    controls: ClassVar[tuple[Control, ...]] = (_ONE_HOLDER,)
    depends_on = ("algorithm", "training.backward", "training.batch")
    about: ClassVar[str]
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "masked, homomorphic or strictest with labels at one owner; otherwise nothing built",
        LAST: "nothing built (label DP, or a loss whose gradient stays home)",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A class or a cluster for each node, ``[nodes]``, -1 for nodes of no batch, by each sender."""
        by_owner = self._single(view)
        values = {
            owner: self._read(view, self._rows(view, seen, knowledge), knowledge, (owner,))
            for owner, seen in by_owner.items()
        }
        return Guess(self.about, values, {o: (o,) for o in by_owner}, sum(map(len, by_owner.values())))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from sums of all owners' gradients."""
        last = len(view.public["settings"].get("aggregated", ())) - 1
        segments = {seen.exchange: seen.values["segment"] for seen in view.asked(_SUMMED)}
        sums = [seen for seen in view.sums(_SUMMED) if segments.get(seen.exchange) == last]
        if not sums:
            raise Blind(f"{self.id}: no sum of gradients was opened in this view")
        rows = self._rows(view, sums, knowledge)
        return Guess(
            self.about,
            {ALL: self._read(view, rows, knowledge, sums[0].clients)},
            {ALL: sums[0].clients},
            len(sums),
        )

    def _read(self, view: View, rows: Rows, knowledge: Knowledge, owners: tuple[str, ...]) -> np.ndarray:
        raise NotImplementedError

    def _single(self, view: View) -> dict[str, list[Seen]]:
        channel = _SENT if _SENT in view.public["channels"] else _SUMMED
        if channel not in view.public["channels"]:
            raise Blind(f"{self.id}: {view.why_unreadable(_SENT)}")
        if channel == _SUMMED and SERVER not in view.parties:
            raise Blind(f"{self.id}: with gradients through the server every owner holds the labels itself")
        by_owner: dict[str, list[Seen]] = {}
        if channel == _SUMMED:
            last = len(view.public["settings"]["aggregated"]) - 1
            segments = {seen.exchange: seen.values["segment"] for seen in view.asked(_SUMMED)}
            uploads = [seen for seen in view.uploads(_SUMMED) if segments.get(seen.exchange) == last]
        else:
            gradients = view.uploads(_SENT) or view.delivered(_SENT)
            uploads = list({(seen.exchange, seen.clients): seen for seen in gradients}.values())
        for seen in uploads:
            by_owner.setdefault(seen.clients[0], []).append(seen)
        if not by_owner:
            raise Blind(f"{self.id}: {view.why_unreadable(channel)}")
        return by_owner

    def _rows(self, view: View, seen: list[Seen], knowledge: Knowledge) -> Rows:
        # of whoever reads the gradient without being asked for one, the iteration's other requests tell the
        # seed
        seeds = {
            one.exchange: int(one.values["seed"])
            for name in (_SENT, _SUMMED, *_FORWARD)
            if name in view.public["channels"]
            for one in view.asked(name)
        }
        nodes, gradients = [], []
        for one in seen:
            last = max(exchange for exchange in seeds if exchange <= one.exchange)
            nodes.append(centres_of(view, {"seed": seeds[last]}, knowledge))
            gradients.append(np.asarray(one.values["rows"], dtype=np.float64))
        return Rows(np.concatenate(nodes), np.concatenate(gradients))


class GradientLabels(_Gradients):
    """D5 with the head: the class whose share of ``g W_c^+`` is the least, over all batches of a node."""

    id = "d5-gradient-labels"
    title = "labels of training nodes, from the gradient and the classifier"
    subject = "labels of training nodes from gradients"
    summary = "labels of training nodes, from the label holder's gradient and classifier"
    about = NODE_LABELS
    grants = (WHICH, "the classifiers of those who hold labels, as they started")
    needs = (TRAINING, NODES, HEADS)
    cost = "a pseudo-inverse of classes by width"

    def _read(self, view: View, rows: Rows, knowledge: Knowledge, owners: tuple[str, ...]) -> np.ndarray:
        head = sum(knowledge.facts[HEADS][owner] for owner in owners if owner in knowledge.facts[HEADS])
        shares = rows.gradients @ np.linalg.pinv(head)
        total = np.zeros((knowledge.facts[NODES], shares.shape[1]))
        np.add.at(total, rows.nodes, shares / np.maximum(np.abs(shares).sum(1, keepdims=True), 1e-30))
        labels: np.ndarray = np.where(total.any(1), total.argmin(1), -1)
        return labels


class GradientClusters(_Gradients):
    """D5 without the head: k-means on directions. One known node a class would name the clusters."""

    id = "d5-gradient-clusters"
    title = "which training nodes share a label, from the gradient alone"
    subject = "groups of nodes of one label"
    summary = "which training nodes share a label, from that gradient's directions alone"
    about = CLUSTERS
    grants = (WHICH,)
    needs = (TRAINING, NODES)
    cost = "k-means with ten starts"
    starts = 10

    def _read(self, view: View, rows: Rows, knowledge: Knowledge, owners: tuple[str, ...]) -> np.ndarray:
        total = np.zeros((knowledge.facts[NODES], rows.gradients.shape[1]))
        size = np.linalg.norm(rows.gradients, axis=1, keepdims=True)
        np.add.at(total, rows.nodes, rows.gradients / np.maximum(size, 1e-30))
        seen = np.flatnonzero(total.any(1))
        points = total[seen] / np.linalg.norm(total[seen], axis=1, keepdims=True)
        best, least = np.zeros(len(seen), dtype=int), np.inf
        for start in range(self.starts):
            rng = np.random.default_rng(start)
            centres, of = kmeans2(
                points, view.public["schema"]["classes"], minit="++", seed=rng, missing="warn"
            )
            apart = float(np.square(points - centres[of]).sum())
            if apart < least:
                best, least = of, apart
        labels = np.full(len(total), -1)
        labels[seen] = best
        return labels
