"""A7 and G5: the share of each class in training data, by shadow owners' updates or models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedgraph.attacks.attack import SERVER, Blind, Control, Guess, Knowledge, OfFirstUpdate
from secure_fedgraph.attacks.linear import fitted
from secure_fedgraph.attacks.released import OnReleased
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

CLASS_SHARES = "class shares"
SHADOW_OWNERS = "shadow owners"
MEAN_ANSWERS = "mean answers of published and shadow models"
SUMS = 200
"""Sums of shadow owners' updates that are put together where only a sum is read."""


@dataclass(frozen=True)
class ShadowOwners:
    """Made-up owners with training data of the attacker's, who answered the first round's request.

    Args:
        updates: channel -> each shadow owner's upload, in the order of ``shares``.
        shares: ``[shadow owners, classes]`` of each one's training labels.
        ask: parameters -> ``[classes]`` the mean answer of that model about nodes of the attacker's; None
            where uploads are no parameters.
    """

    updates: Mapping[str, Sequence[Mapping[str, np.ndarray]]] = field(repr=False)
    shares: np.ndarray = field(repr=False)
    ask: Callable[[Mapping[str, np.ndarray]], np.ndarray] | None = field(repr=False)


class UpdateClassShares(OfFirstUpdate):
    """A7: how the training labels of an owner are spread over the classes (property inference).

    The attacker plays owners of its own: it draws class shares, samples training nodes by them from nodes
    that it has, and lets each do what a client does in the first round, from the same broadcast. A ridge
    regression then maps traits of an update to shares: sums and lengths of its arrays along the axis of the
    classes, and the mean answer of the updated model about nodes of the attacker's.

    It holds for any optimiser and number of local steps, because shadow owners take the same ones;
    ``a4-label-counts`` is exact, but needs a single plain step.

    References:
        Ganju et al., Property Inference Attacks on Fully Connected Neural Networks using Permutation
        Invariant Representations, CCS 2018; Melis et al., Exploiting Unintended Feature Leakage in
        Collaborative Learning, S&P 2019; Ateniese et al. 2015.
    """

    id = "a7-class-shares"
    subject = "class shares by shadow owners"
    summary = "class shares of an owner's training data, from its first update"
    adversaries = (SERVER,)
    about = CLASS_SHARES
    also_reads = ("moments", "class_sums")
    grants = (
        "nodes of the same kind with labels and links: half of the nodes that nobody trained on, of which "
        "shadow owners are made; the other half is asked about",
        "the algorithm with its settings, and how many training nodes an owner has on average, which "
        "are public",
    )
    needs = (SHADOW_OWNERS,)
    controls = (Control("one epoch of Adam at 0.01", {"rounds": 1, "training.learning_rate": 0.01}),)
    depends_on = ("training.optimizer", "training.learning_rate", "training.epochs", "training.batch")

    def read(self, view: View, knowledge: Knowledge, seen: Seen) -> np.ndarray:
        """Class shares of an owner; of a sum the mean of all, by sums of as many shadow owners' updates."""
        shadows: ShadowOwners | None = knowledge.facts[SHADOW_OWNERS]
        channel, many = self.channel_in_use(view), len(seen.clients)
        if shadows is None or channel not in shadows.updates:
            raise Blind(
                f"{self.id}: there are no updates of a classifier of nodes, or no nodes left to make shadow "
                "owners of"
            )
        before = next((one.values for one in view.asked(channel) if one.round == seen.round), {})
        updates, shares = shadows.updates[channel], shadows.shares
        if many > 1:
            groups = np.random.default_rng(0).integers(0, len(shares), (SUMS, many))
            names = updates[0]
            updates = [
                {n: np.mean([updates[k][n] for k in group], axis=0) for n in names} for group in groups
            ]
            shares = shares[groups].mean(1)
        estimate = fitted(np.stack([self._traits(one, before, shadows) for one in updates]), shares)
        mean = {name: np.asarray(value) / many for name, value in seen.values.items()}
        (row,) = estimate(self._traits(mean, before, shadows)[None])
        return as_shares(row)

    def _traits(
        self, update: Mapping[str, Any], before: Mapping[str, np.ndarray], shadows: ShadowOwners
    ) -> np.ndarray:
        rows = traits(update, shadows.shares.shape[1])
        if shadows.ask is None:
            return rows
        after = {name: before[name] + np.asarray(step) for name, step in update.items() if name in before}
        return np.concatenate([rows, shadows.ask({**before, **after})])


def traits(update: Mapping[str, Any], classes: int) -> np.ndarray:
    """Sums and lengths of an update's arrays along the axis of the classes, in the order of their names.

    >>> traits({"head.bias": np.array([1.0, 2.0]), "other": np.zeros(5)}, 2)
    array([1., 2.])
    """
    parts = [np.zeros(0)]
    for _, value in sorted(update.items()):
        array = np.squeeze(np.asarray(value, dtype=np.float64))
        if array.ndim == 1 and len(array) == classes:
            parts.append(array)
        elif array.ndim == 2 and classes in array.shape:
            by_class = array if array.shape[0] == classes else array.T
            parts += [by_class.sum(1), np.linalg.norm(by_class, axis=1)]
    return np.concatenate(parts)


def as_shares(row: np.ndarray) -> np.ndarray:
    """An estimate with what is below zero cut off, and a sum of 1."""
    positive = np.clip(row, 0, None)
    return np.asarray(positive / max(float(positive.sum()), 1e-12))


@dataclass(frozen=True)
class MeanAnswers:
    """What models answer about nodes of the attacker's, in the mean.

    Args:
        shadows: ``[shadow models, 3 * classes]`` mean probabilities, mean log-probabilities, and the mean
            probability of their own class at each class's nodes.
        shares: ``[shadow models, classes]`` of their training labels.
        personal: owner -> ``[3 * classes]`` of its own model.
    """

    shadows: np.ndarray = field(repr=False)
    shares: np.ndarray = field(repr=False)
    personal: Mapping[str, np.ndarray] = field(repr=False)


class ModelClassShares(OnReleased):
    """G5: how training labels are spread over the classes, from a published model (property inference).

    A model answers the classes that it often saw more often. Shadow models with known class shares show by
    how much, and a ridge regression maps mean answers to shares. It attacks owners' own models, where they
    publish them.

    References:
        Ateniese et al., Hacking Smart Machines with Smarter Ones, 2015; Ganju et al., CCS 2018; Suri and
        Evans, Formalizing and Estimating Distribution Inference Risks, PETS 2022 (black-box shadow models).
    """

    id = "g5-class-shares"
    subject = "class shares from a published model"
    summary = "class shares of an owner's training data, from its published model"
    nothing_left = "one model of all owners says of them what nodes that nobody trained on say"
    grants = (
        "nodes of the same kind with labels and links: half of the nodes that nobody trained on, of which "
        "training data of shadow models are made; the other half is asked about",
        "the algorithm with its settings, how many training nodes an owner has on average, and the model of "
        "each owner, as it would publish it",
    )
    needs = (MEAN_ANSWERS,)
    controls = (Control("released after 20 rounds", {"rounds": 20}),)
    stops = "not publishing one owner's model; noise only where it ruins the model"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The class shares of each owner that has a model of its own, ``[classes]``."""
        facts: MeanAnswers | None = knowledge.facts[MEAN_ANSWERS]
        if facts is None:
            raise Blind(
                f"{self.id}: no owner's own model is published, or no nodes are left for shadow models"
            )
        estimate = fitted(facts.shadows, facts.shares)
        values = {o: as_shares(estimate(row[None])[0]) for o, row in facts.personal.items()}
        return Guess.of_owners(CLASS_SHARES, values, 0)
