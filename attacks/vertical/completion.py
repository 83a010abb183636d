"""D8 on GLASU: labels of training nodes by model completion, from embeddings and a few labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import LAST, Attack, Blind, Guess, Knowledge
from secure_fedgraph.attacks.regression import fitted
from secure_fedgraph.attacks.vertical.label_groups import STEP, TRAINED, directions, embeddings
from secure_fedgraph.attacks.vertical.lists import NODES, TRAINING, WHICH
from secure_fedgraph.attacks.vertical.rows import TAKE
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER

COMPLETED = "labels by completion"
LABELLED = "a few labelled training nodes"
LATEST = 0.5
"""The share of all rounds, the last ones, whose embeddings are read: earlier ones are of another model."""
SWEEPS = 10


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
    title = "labels of training nodes, from embeddings and a few labels"
    subject = "labels by model completion"
    family = "glasu"
    summary = "labels of training nodes, from top embeddings and a few labels"
    adversaries: ClassVar[tuple[str, ...]] = (LAST, SERVER)
    channel = STEP
    also_reads: ClassVar[tuple[str, ...]] = (TAKE,)
    partition = "vertical"
    grants = (WHICH, "the labels of four training nodes of each class")
    needs = (TRAINING, NODES, LABELLED)
    cost = "eleven ridge regressions"
    controls = (TRAINED,)
    depends_on = ("algorithm", "rounds", "training.batch")
    stops: ClassVar[Mapping[str, str]] = {
        LAST: "nothing built: the server hands every owner the embeddings",
        SERVER: "nothing built: the server hands every owner the embeddings",
    }

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
        return Guess(COMPLETED, {ALL: labels}, {ALL: tuple(view.public["clients"])}, len(rows.nodes))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Nothing: embeddings are handed out as they are."""
        raise Blind(f"{self.id}: what is handed out is the aggregate of all owners already")


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
