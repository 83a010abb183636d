"""G5: the share of each class in training data, from what a published model and shadow models answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import OUTSIDER, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.regression import fitted
from secure_fedgraph.attacks.released.reading import NO_MODEL, OnReleased
from secure_fedgraph.attacks.weights.class_shares import CLASS_SHARES, as_shares
from secure_fedgraph.attacks.weights.updates import ALL
from secure_fedgraph.protocol import View

MEAN_ANSWERS = "mean answers of published and shadow models"


@dataclass(frozen=True)
class MeanAnswers:
    """What models answer about nodes of the attacker's, in the mean.

    Args:
        shadows: ``[shadow models, 3 * classes]`` mean probabilities, mean log-probabilities, and the mean
            probability of their own class at each class's nodes.
        shares: ``[shadow models, classes]`` of their training labels.
        personal: owner -> ``[3 * classes]`` of its own model.
        shared: the same of the released one; None where there is none.
        owners: all of them.
    """

    shadows: np.ndarray = field(repr=False)
    shares: np.ndarray = field(repr=False)
    personal: Mapping[str, np.ndarray] = field(repr=False)
    shared: np.ndarray | None = field(repr=False)
    owners: tuple[str, ...]


class ModelClassShares(OnReleased):
    """G5: how training labels are spread over the classes, from a published model (property inference).

    A model answers the classes that it often saw more often. Shadow models with known class shares show by
    how much, and a ridge regression maps mean answers to shares.

    :meth:`run` attacks each owner's own model, where owners publish one. A released model is everybody's, so
    :meth:`residual` asks it for the mean share of all owners, and the audit compares that with the shares
    among nodes that nobody trained on: where owners' data are a random part of all, these are the same.

    References:
        Ateniese et al., Hacking Smart Machines with Smarter Ones, 2015; Ganju et al., CCS 2018; Suri and
        Evans, Formalizing and Estimating Distribution Inference Risks, PETS 2022 (black-box shadow models).
    """

    id = "g5-class-shares"
    title = "the share of each class in training data, from a published model"
    subject = "class shares from a published model"
    summary = "class shares of an owner's training data, from its published model"
    cost = "24 shadow models: half a minute on Cora"
    grants = (
        "nodes of the same kind with labels and links: half of the nodes that nobody trained on, of which "
        "training data of shadow models are made; the other half is asked about",
        "the algorithm with its settings, and how many training nodes an owner has on average; where "
        "models are "
        "personal, the model of each owner, as it would publish it",
    )
    needs = (MEAN_ANSWERS,)
    controls = (Control("released after 20 rounds", {"rounds": 20}),)
    stops: ClassVar[Mapping[str, str]] = {
        OUTSIDER: "not publishing one owner's model; noise only where it ruins the model"
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The class shares of each owner that has a model of its own, ``[classes]``."""
        facts = self._facts(knowledge)
        if not facts.personal:
            raise Blind(f"{self.id}: one model was released for all owners, and nobody's own is published")
        estimate = fitted(facts.shadows, facts.shares)
        values = {o: as_shares(estimate(row[None])[0]) for o, row in facts.personal.items()}
        return Guess(CLASS_SHARES, values, {owner: (owner,) for owner in values}, 0)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The mean of all owners' shares, from the released model."""
        facts = self._facts(knowledge)
        if facts.shared is None:
            raise Blind(f"{self.id}: no model of all owners was released")
        (row,) = fitted(facts.shadows, facts.shares)(facts.shared[None])
        return Guess(CLASS_SHARES, {ALL: as_shares(row)}, {ALL: facts.owners}, 0)

    def _facts(self, knowledge: Knowledge) -> MeanAnswers:
        facts: MeanAnswers | None = knowledge.facts[MEAN_ANSWERS]
        if facts is None:
            raise Blind(f"{self.id}: {NO_MODEL}, or no nodes are left to train shadow models on")
        return facts
