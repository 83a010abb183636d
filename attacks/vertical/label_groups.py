"""D7 on GLASU: groups of nodes with one label, without the classifier or the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy.cluster.vq import kmeans2

from secure_fedgraph.attacks.attack import LAST, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.vertical.labels import GradientLabels, Rows, _Gradients
from secure_fedgraph.attacks.vertical.lists import NODES, TRAINING, WHICH, centres_of
from secure_fedgraph.attacks.vertical.rows import TAKE, taken
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER

GROUPS = "label groups"
STEP = "step"
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


class BlindGroups(_Gradients):
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
    title = "which training nodes share a label, without knowing the classifier or the classes"
    subject = "labels with zero knowledge"
    summary = "which training nodes share a label, without knowing the classes"
    about = GROUPS
    also_reads = (*GradientLabels.also_reads, STEP, TAKE)
    partition = "vertical"
    grants = (WHICH,)
    needs = (TRAINING, NODES)
    first_rounds = 20  # gradients say all in the first; embeddings only what was learned since
    cost = "k-means for 2 to 20 groups"
    controls = (*_Gradients.controls, TRAINED)
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "masked, homomorphic or strictest with labels at one owner; for embeddings nothing built",
        LAST: "nothing built",
    }

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Groups from the embeddings at the top, of all owners together."""
        rows = embeddings(self.id, view, knowledge)
        groups = self._read(view, rows, knowledge, ())
        return Guess(self.about, {ALL: groups}, {ALL: tuple(view.public["clients"])}, len(rows.nodes))

    def _read(self, view: View, rows: Rows, knowledge: Knowledge, owners: tuple[str, ...]) -> np.ndarray:
        total = directions(rows, knowledge.facts[NODES])
        seen = np.flatnonzero(total.any(1))
        groups = np.full(len(total), -1)
        groups[seen] = _grouped(total[seen] / np.linalg.norm(total[seen], axis=1, keepdims=True))
        return groups


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
        return Rows(training, handed_home[training])
    if STEP not in view.public["channels"]:
        raise Blind(f"{attack}: the algorithm has no channel {STEP!r}")
    handed = {seen.exchange: seen.values for seen in view.asked(STEP) if "aggregate" in seen.values}
    if not handed or knowledge.facts[NODES] is None:
        raise Blind(f"{attack}: no aggregate at the top was handed out")
    read = [given for _, given in sorted(handed.items())][-max(1, round(latest * len(handed))) :]
    nodes = [centres_of(view, given, knowledge) for given in read]
    rows = [np.asarray(given["aggregate"], dtype=np.float64) for given in read]
    return Rows(np.concatenate(nodes), np.concatenate(rows))


def directions(rows: Rows, nodes: int) -> np.ndarray:
    """``[nodes, width]`` the sum of each node's rows, each of length 1; zeros for nodes of no batch."""
    total = np.zeros((nodes, rows.gradients.shape[1]))
    size = np.linalg.norm(rows.gradients, axis=1, keepdims=True)
    np.add.at(total, rows.nodes, rows.gradients / np.maximum(size, 1e-30))
    return total


def _grouped(points: np.ndarray) -> np.ndarray:
    """The groups of the number with the best silhouette; fewer groups where more are hardly better."""
    best, highest = np.zeros(len(points), dtype=int), -np.inf
    for many in range(2, max(2, min(MOST_GROUPS, len(points) // FEWEST)) + 1):
        found, least = best, np.inf
        for start in range(5):
            rng = np.random.default_rng(start)
            centres, of = kmeans2(points, many, minit="++", seed=rng, missing="warn")
            apart = float(np.square(points - centres[of]).sum())
            if apart < least:
                found, least = of, apart
        silhouette = _silhouette(points, found)
        if silhouette > highest + NEAR:
            best, highest = found, silhouette
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
