"""A7: the share of each class in an owner's training data, from its update and those of shadow owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.regression import fitted
from secure_fedgraph.attacks.weights.updates import ALL, STOPS
from secure_fedgraph.protocol import View

CLASS_SHARES = "class shares"
SHADOW_OWNERS = "shadow owners"
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


class UpdateClassShares(Attack):
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
    title = "the share of each class in an owner's training data, by shadow owners"
    subject = "class shares by shadow owners"
    family = "weights"
    summary = "class shares of an owner's training data, from its first update"
    adversaries = (SERVER,)
    channel = "update"
    also_reads = ("moments", "class_sums")
    first_rounds = 1
    cost = "one round of 60 shadow owners: ten seconds on Cora"
    grants = (
        "nodes of the same kind with labels and links: half of the nodes that nobody trained on, of which "
        "shadow owners are made; the other half is asked about",
        "the algorithm with its settings, and how many training nodes an owner has on average, which "
        "are public",
    )
    needs = (SHADOW_OWNERS,)
    controls = (Control("one epoch of Adam at 0.01", {"rounds": 1, "training.learning_rate": 0.01}),)
    depends_on = ("training.optimizer", "training.learning_rate", "training.epochs", "training.batch")
    stops: ClassVar[Mapping[str, str]] = STOPS

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The class shares of each owner ``[classes]``, from its first upload."""
        shadows, channel = self._shadows(view, knowledge)
        uploads = view.uploads(channel)
        if not uploads:
            raise Blind(f"{self.id}: {view.why_unreadable(channel)}")
        first = min(seen.round for seen in uploads)
        used = [seen for seen in uploads if seen.round == first]
        before = self._broadcast(view, channel, first)
        estimate = self._fitted(shadows, shadows.updates[channel], shadows.shares, before)
        rows = np.stack([self._traits(seen.values, before, shadows) for seen in used])
        values = {seen.clients[0]: as_shares(row) for seen, row in zip(used, estimate(rows), strict=True)}
        return Guess(CLASS_SHARES, values, {s.clients[0]: s.clients for s in used}, len(used))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The mean of all contributors' shares, from the first sum and sums of shadow owners' updates."""
        shadows, channel = self._shadows(view, knowledge)
        sums = view.sums(channel)
        if not sums:
            raise Blind(f"{self.id}: no sum of channel {channel!r} was opened in this view")
        seen = min(sums, key=lambda one: one.round)
        before, many = self._broadcast(view, channel, seen.round), len(seen.clients)
        rng = np.random.default_rng(0)
        groups = rng.integers(0, len(shadows.shares), (SUMS, many))
        own = shadows.updates[channel]
        means = [
            {name: np.mean([own[k][name] for k in group], axis=0) for name in own[0]} for group in groups
        ]
        estimate = self._fitted(shadows, means, shadows.shares[groups].mean(1), before)
        mean = {name: np.asarray(value) / many for name, value in seen.values.items()}
        (row,) = estimate(self._traits(mean, before, shadows)[None])
        return Guess(CLASS_SHARES, {ALL: as_shares(row)}, {ALL: seen.clients}, 1)

    def _shadows(self, view: View, knowledge: Knowledge) -> tuple[ShadowOwners, str]:
        shadows: ShadowOwners | None = knowledge.facts[SHADOW_OWNERS]
        channels = [one for one in self.reads() if one in view.public["channels"]]
        if shadows is None or not channels or channels[0] not in shadows.updates:
            raise Blind(
                f"{self.id}: there are no updates of a classifier of nodes, or no nodes left to make shadow "
                "owners of"
            )
        return shadows, channels[0]

    def _broadcast(self, view: View, channel: str, round: int) -> Mapping[str, np.ndarray]:
        asked = (seen.values for seen in view.asked(channel) if seen.round == round)
        return next(asked, {})

    def _fitted(
        self,
        shadows: ShadowOwners,
        updates: Sequence[Mapping[str, np.ndarray]],
        shares: np.ndarray,
        before: Mapping[str, np.ndarray],
    ) -> Callable[[np.ndarray], np.ndarray]:
        return fitted(np.stack([self._traits(one, before, shadows) for one in updates]), shares)

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
    shares: np.ndarray = positive / max(float(positive.sum()), 1e-12)
    return shares
