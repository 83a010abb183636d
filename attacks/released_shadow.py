"""G3: whether a node was trained on, from what the released model and shadow models answer about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import OUTSIDER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.released import NO_FOLDER
from secure_fedgraph.protocol import View

MEMBERS = "nodes trained on"
CANDIDATES = "candidates and shadow models"


@dataclass(frozen=True)
class Candidates:
    """What the released model and the shadow models say about one owner's candidates.

    Args:
        target: ``[nodes]`` the released model's probability of a node's own label.
        right: ``[nodes]`` whether that label is its answer.
        shadows: ``[models, nodes]`` the shadow models' probabilities.
        inside: ``[models, nodes]`` which nodes a shadow model was trained on; each node is in half of them.
    """

    target: np.ndarray = field(repr=False)
    right: np.ndarray = field(repr=False)
    shadows: np.ndarray = field(repr=False)
    inside: np.ndarray = field(repr=False)


class NodeMembership(Attack):
    """G3: whether a node, with the links at it, was among those trained on (RMIA).

    The score is the likelihood ratio ``p(y | x, model) / p(y | x)``, whose denominator is the mean over
    shadow models of which half had the node. RMIA also compares the ratio with those of a population. That is
    monotone in the ratio, so it sets a threshold but does not change the order, and is left out.

    Candidates are exchangeable: a coin put each in or out, with its links, before the audited model was
    trained. Training and test nodes of one graph would not do: test nodes stay in the graph as neighbours, so
    only the use of their labels differs.

    References:
        Zarifzadeh, Liu, Shokri, Low-Cost High-Power Membership Inference Attacks, ICML 2024; Carlini et al.,
        Membership Inference Attacks From First Principles, S&P 2022.
    """

    id = "g3-node-membership"
    title = "whether a node was trained on, from the released model"
    subject = "membership in a released model's training"
    family = "released"
    summary = "whether a node was trained on, from the released model and shadow models"
    adversaries = (OUTSIDER,)
    channel = "update"
    first_rounds = 0
    depends_on = ("rounds", "training.learning_rate", "training.epochs")
    cost = "one more run, with half of the nodes, and eight shadow models: a minute on Cora"
    grants = (
        "candidates with features, label and links, half of whom coins put into the audited model's training",
        "shadow models trained on halves of the same candidates",
    )
    needs = (CANDIDATES,)
    controls = (Control("trained to the end", {"rounds": 20, "training.learning_rate": 0.01}),)
    stops: ClassVar[Mapping[str, str]] = {
        OUTSIDER: "noise in training: local_dp, distributed_dp, or steps.noise"
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The log ratio of every candidate ``[nodes]``."""
        values = {}
        for owner, one in self._candidates(knowledge).items():
            inside = np.where(one.inside, one.shadows, 0).sum(0) / one.inside.sum(0)
            outside = np.where(one.inside, 0, one.shadows).sum(0) / (~one.inside).sum(0)
            usual = (inside + outside) / 2
            values[owner] = np.log(np.maximum(one.target, 1e-12)) - np.log(np.maximum(usual, 1e-12))
        return Guess(MEMBERS, values, {owner: (owner,) for owner in values}, 0)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """For a service that returns labels only: whether it is right, less how often shadow models are."""
        values = {}
        for owner, one in self._candidates(knowledge).items():
            easy = np.where(one.inside, 0, one.shadows).sum(0) / (~one.inside).sum(0)
            values[owner] = one.right.astype(float) * (2 - easy)
        return Guess(MEMBERS, values, {owner: (owner,) for owner in values}, 0)

    def _candidates(self, knowledge: Knowledge) -> Mapping[str, Candidates]:
        candidates: Mapping[str, Candidates] = knowledge.facts[CANDIDATES]
        if not candidates:
            raise Blind(
                f"{self.id}: no classifier of nodes was released ({NO_FOLDER}), or the run keeps no "
                "configuration to train shadow models with"
            )
        return candidates
