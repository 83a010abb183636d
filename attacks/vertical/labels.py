"""D5, D7 and D8 on GLASU: labels of training nodes, from gradients and from embeddings at the top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy.cluster.vq import kmeans2

from secure_fedgraph.attacks.attack import ALL, LAST, SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.linear import fitted
from secure_fedgraph.attacks.vertical.links import NODES, TAKE, TRAINING, WHICH, centres_of, taken
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

NODE_LABELS, CLUSTERS = "node labels", "label clusters"
GROUPS, COMPLETED = "label groups", "labels by completion"
LABELLED = "a few labelled training nodes"
HEADS = "heads of the label holders"
_SENT, _SUMMED, STEP = "gradient", "backward", "step"
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
MOST_GROUPS = 20
FEWEST = 8
"""Nodes that a group has on average, at least."""
NEAR = 0.02
"""How much better the silhouette of more groups has to be."""
TRAINED = Control(
    "labels at one owner for twenty rounds",
    {
        "rounds": 20,
        "algorithm": "glasu-one-label-holder",
        "training.backward": "local",
        "training.sampler": "public",
        "split.labels": "one",
    },
)
"""Embeddings say about labels what the network has learned; gradients say all of it in the first round."""


LATEST = 0.5
"""The share of all rounds, the last ones, whose embeddings are read: earlier ones are of another model."""
SWEEPS = 10

Rows = tuple[np.ndarray, np.ndarray]
"""The nodes that batches had, ``[rows]``, and a row for each, ``[rows, width]``."""


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
        return Guess.of_owners(self.about, values, sum(map(len, by_owner.values())))

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
        return np.concatenate(nodes), np.concatenate(gradients)


class GradientLabels(_Gradients):
    """D5 with the head: the class whose share of ``g W_c^+`` is the least, over all batches of a node."""

    id = "d5-gradient-labels"
    subject = "labels of training nodes from gradients"
    summary = "labels of training nodes, from the label holder's gradient and classifier"
    about = NODE_LABELS
    grants = (WHICH, "the classifiers of those who hold labels, as they started")
    needs = (TRAINING, NODES, HEADS)

    def _read(self, view: View, rows: Rows, knowledge: Knowledge, owners: tuple[str, ...]) -> np.ndarray:
        head = sum(knowledge.facts[HEADS][owner] for owner in owners if owner in knowledge.facts[HEADS])
        nodes, gradients = rows
        shares = gradients @ np.linalg.pinv(head)
        total = np.zeros((knowledge.facts[NODES], shares.shape[1]))
        np.add.at(total, nodes, shares / np.maximum(np.abs(shares).sum(1, keepdims=True), 1e-30))
        return np.where(total.any(1), total.argmin(1), -1)


class GradientClusters(_Gradients):
    """D5 without the head: k-means on directions. One known node a class would name the clusters."""

    id = "d5-gradient-clusters"
    subject = "groups of nodes of one label"
    summary = "which training nodes share a label, from that gradient's directions alone"
    about = CLUSTERS
    grants = (WHICH,)
    needs = (TRAINING, NODES)

    def _read(self, view: View, rows: Rows, knowledge: Knowledge, owners: tuple[str, ...]) -> np.ndarray:
        total = directions(rows, knowledge.facts[NODES])
        seen = np.flatnonzero(total.any(1))
        groups = np.full(len(total), -1)
        unit = total[seen] / np.linalg.norm(total[seen], axis=1, keepdims=True)
        groups[seen] = self._grouped(view, unit)
        return groups

    def _grouped(self, view: View, points: np.ndarray) -> np.ndarray:
        return _nearest_means(points, view.public["schema"]["classes"], starts=10)


class BlindGroups(GradientClusters):
    """D7: labels with zero knowledge: neither the classifier, nor how many classes there are.

    :meth:`run` groups the directions of gradients, which point away from the label's row of a classifier
    that nobody knows. The number of groups is the one whose silhouette is best. :meth:`residual` does
    the same with embeddings: the aggregate at the top, which every owner and the server are handed with the
    order to update, under every policy. It is what is left where no gradient is handed out.

    Groups have no names. They are scored under the best assignment of one class to each, so splitting a
    class costs what it splits off.

    References:
        BlindSage: Label Inference Attacks against Vertical Federated GNNs, 2023 (arXiv 2308.02465): zero
        background knowledge. There a surrogate classifier is fitted to the gradients; their directions say
        the same.
    """

    id = "d7-blind-groups"
    subject = "labels with zero knowledge"
    summary = "which training nodes share a label, without knowing the classes"
    about = GROUPS
    also_reads = (*GradientLabels.also_reads, STEP, TAKE)
    partition = "vertical"
    first_rounds = 20  # gradients say all in the first; embeddings only what was learned since
    controls = (*_Gradients.controls, TRAINED)
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "masked, homomorphic or strictest with labels at one owner; for embeddings nothing built",
        LAST: "nothing built",
    }

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Groups from the embeddings at the top, of all owners together."""
        rows = embeddings(self.id, view, knowledge)
        groups = self._read(view, rows, knowledge, ())
        return Guess(self.about, {ALL: groups}, {ALL: tuple(view.public["clients"])}, len(rows[0]))

    def _grouped(self, view: View, points: np.ndarray) -> np.ndarray:
        """The groups of the number with the best silhouette; fewer where more are hardly better."""
        best, highest = np.zeros(len(points), dtype=int), -np.inf
        for many in range(2, max(2, min(MOST_GROUPS, len(points) // FEWEST)) + 1):
            found = _nearest_means(points, many, starts=5)
            silhouette = _silhouette(points, found)
            if silhouette > highest + NEAR:
                best, highest = found, silhouette
        return best


def embeddings(attack: str, view: View, knowledge: Knowledge, latest: float = 1.0) -> Rows:
    """The aggregates at the top, as the order to update hands them out; each exchange once.

    Where owners learn at home, the rows that they are handed for it.

    Args:
        latest: the share of the exchanges that are read, the last ones.

    Raises:
        Blind: where none was handed out.
    """
    if (handed_home := taken(view)) is not None:
        training = knowledge.facts[TRAINING]
        return training, handed_home[training]
    if STEP not in view.public["channels"]:
        raise Blind(f"{attack}: the algorithm has no channel {STEP!r}")
    handed = {seen.exchange: seen.values for seen in view.asked(STEP) if "aggregate" in seen.values}
    if not handed or knowledge.facts[NODES] is None:
        raise Blind(f"{attack}: no aggregate at the top was handed out")
    read = [given for _, given in sorted(handed.items())][-max(1, round(latest * len(handed))) :]
    nodes = [centres_of(view, given, knowledge) for given in read]
    rows = [np.asarray(given["aggregate"], dtype=np.float64) for given in read]
    return np.concatenate(nodes), np.concatenate(rows)


def directions(rows: Rows, nodes: int) -> np.ndarray:
    """``[nodes, width]`` the sum of each node's rows, each of length 1; zeros for nodes of no batch."""
    numbers, made = rows
    total = np.zeros((nodes, made.shape[1]))
    np.add.at(total, numbers, made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-30))
    return total


def _nearest_means(points: np.ndarray, many: int, starts: int) -> np.ndarray:
    """The groups of the best of some starts of k-means, ``[points]``."""
    best, least = np.zeros(len(points), dtype=int), np.inf
    for start in range(starts):
        rng = np.random.default_rng(start)
        centres, of = kmeans2(points, many, minit="++", seed=rng, missing="warn")
        apart = float(np.square(points - centres[of]).sum())
        if apart < least:
            best, least = of, apart
    return best


def _silhouette(points: np.ndarray, of: np.ndarray) -> float:
    """How much nearer a point's own group's mean is than the next one's (Rousseeuw 1987)."""
    kept = np.unique(of)
    if len(kept) < 2:
        return -1.0
    centres = np.stack([points[of == one].mean(0) for one in kept])
    far = np.linalg.norm(points[:, None] - centres[None], axis=2)
    own = far[np.arange(len(points)), np.searchsorted(kept, of)]
    far[np.arange(len(points)), np.searchsorted(kept, of)] = np.inf
    other = far.min(1)
    return float(np.mean((other - own) / np.maximum(np.maximum(own, other), 1e-12)))


class ModelCompletion(Attack):
    """D8: an owner without labels completes the model with a classifier of its own (Fu et al.).

    It is handed the embeddings at the top, which training has pulled apart by class, and somehow got the
    labels of a few training nodes of each class. It fits a classifier to these, lets it label all nodes that
    it has embeddings of, fits it to all of them, and so on. No gradient is read: the attack stays where
    gradients are noised or withheld.

    Scored beside the same completion from what the owner had before: its own features, averaged over its own
    links.

    References:
        Fu et al., Label Inference Attacks Against Vertical Federated Learning, USENIX Security 2022, section
        4 (passive attack by model completion; there MixMatch takes the place of self-training).
    """

    id = "d8-model-completion"
    subject = "labels by model completion"
    family = "glasu"
    summary = "labels of training nodes, from top embeddings and a few labels"
    adversaries: ClassVar[tuple[str, ...]] = (LAST, SERVER)
    channel = STEP
    also_reads: ClassVar[tuple[str, ...]] = (TAKE,)
    partition = "vertical"
    nothing_left = "what is handed out is the aggregate of all owners already"
    grants = (WHICH, "the labels of four training nodes of each class")
    needs = (TRAINING, NODES, LABELLED)
    controls = (TRAINED,)
    depends_on = ("algorithm", "rounds", "training.batch")
    stops: ClassVar[str | Mapping[str, str]] = "nothing built: the server hands every owner the embeddings"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A class for each node ``[nodes]``; -1 for nodes of no batch, and where the label was granted."""
        rows = embeddings(self.id, view, knowledge, LATEST)
        known: np.ndarray | None = knowledge.facts[LABELLED]
        if known is None:
            raise Blind(f"{self.id}: no labels of training nodes were granted")
        total = directions(rows, knowledge.facts[NODES])
        seen = np.flatnonzero(total.any(1))
        if not np.any(known[seen] >= 0):
            raise Blind(f"{self.id}: no node with a granted label was in a batch")
        labels = np.full(len(total), -1)
        labels[seen] = completed(total[seen], known[seen], view.public["schema"]["classes"])
        labels[known >= 0] = -1
        return Guess(COMPLETED, {ALL: labels}, {ALL: tuple(view.public["clients"])}, len(rows[0]))


def completed(rows: np.ndarray, known: np.ndarray, classes: int) -> np.ndarray:
    """A class for every row, by a classifier that is fitted to known labels and then to its own answers.

    Args:
        rows: ``[nodes, width]``.
        known: ``[nodes]`` labels, -1 where none is known.

    >>> rows = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> completed(rows, np.array([0, -1, 1, -1]), 2).tolist()
    [0, 0, 1, 1]
    """
    given, one_hot = np.flatnonzero(known >= 0), np.eye(classes)
    labels: np.ndarray = fitted(rows[given], one_hot[known[given]])(rows).argmax(1)
    for _ in range(SWEEPS):
        labels[given] = known[given]
        labels = fitted(rows, one_hot[labels])(rows).argmax(1)
    labels[given] = known[given]
    return labels
