"""Privacy loss distributions of sampled Gaussians that dp-accounting lacks; all rounding is upwards.

Where dp-accounting has the mechanism, its own distribution is used. This module has the rest: two mixtures
of Gaussians whose means move away from a common point in opposite directions. A pair is given by its
hockey-stick curve on a grid, which dp-accounting turns into a distribution that dominates it ("connect the
dots"). ``docs/guarantees.md`` proves that these pairs are the worst.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from secure_fedgraph.core.accounting.events import (
    OccurringGaussian,
    PureRelease,
    SampledGaussian,
    VanishingGaussian,
)
from secure_fedgraph.loading import postponed

dp, special, stats = postponed("dp_accounting"), postponed("scipy.special"), postponed("scipy.stats")
dp_losses = postponed("dp_accounting.pld.privacy_loss_distribution")
pld_pmf = postponed("dp_accounting.pld.pld_pmf")
Array = np.ndarray
Distribution = Any
"""dp-accounting's PrivacyLossDistribution."""
Curve = Callable[[Array], Array]
"""Epsilons (ascending) -> the hockey-stick divergence, never below the true one."""
RARE = 1e-22
"""Counts of occurrences that are less likely are charged to delta."""
_REACH = 10.0
"""Standard deviations of Gaussian noise: what lies beyond has probability 1e-23."""
MOST_POINTS = 40_000
_MOST_VALUES, _AT_ONCE = 400, 8192


def occurrences(count: int, rate: float, rare: float = RARE) -> tuple[Array, Array, float]:
    """How many of a unit's records one step samples: values, their probabilities, and the mass left out.

    Where there are many values, some stand for those just below them.
    """
    law = stats.binom(count, rate)
    values = np.arange(count + 1)
    masses = law.pmf(values)
    keep = masses > rare / (count + 1)
    values, masses = values[keep], masses[keep]
    if values.size > _MOST_VALUES:  # several counts are taken as the largest of them, which costs most
        starts = np.arange(0, values.size, math.ceil(values.size / _MOST_VALUES))
        values = values[np.append(starts[1:], values.size) - 1]
        masses = np.add.reduceat(masses, starts)
    return values, masses, rare  # each of at most count + 1 values left out was rarer than its share of this


def _reach(masses: Array, shifts: Array) -> float:
    """A loss that the Gaussians, each moved by its shift, exceed together with a rare probability only."""
    deviations = np.sqrt(2 * np.maximum(np.log(masses / RARE), 0.0))
    return float(np.max(shifts * shifts / 2 + shifts * deviations))


def mirrored(count: int, rate: float, noise: float, grid: float) -> Distribution:
    """One step's worst pair where touched gradients change: means J against -J, in clips, J binomial."""
    values, masses, left_out = occurrences(count, rate)
    means = values / noise
    forth = _mixtures(means, -means, masses, left_out)
    reach = _reach(masses, 2 * means)
    return dp_losses.PrivacyLossDistribution(_dots(forth, reach, grid))


def vanishing(count: int, rate: float, noise: float, grid: float) -> Distribution:
    """One step's worst pair where touched gradients vanish: means J against 0, in clips, J binomial."""
    values, masses, left_out = occurrences(count, rate)
    means = values / noise
    forth = _mixtures(means, 0 * means, masses, left_out)
    back = _mixtures(0 * means, -means, masses, left_out)  # the same pair, swapped and mirrored
    reach = _reach(masses, means)
    return dp_losses.PrivacyLossDistribution(_dots(forth, reach, grid), _dots(back, reach, grid))


def pure(epsilon: float, grid: float) -> Distribution:
    """Randomised response between two answers, the worst pair of a pure epsilon."""

    def curve(epsilons: Array) -> Array:
        odds = np.exp(np.minimum(epsilons, epsilon) - epsilon)
        return np.asarray((1 - odds) / (1 + math.exp(-epsilon)))

    return dp_losses.PrivacyLossDistribution(_dots(curve, epsilon, grid))


def step_of(
    one: SampledGaussian | OccurringGaussian | VanishingGaussian | PureRelease, grid: float
) -> Distribution:
    """The distribution of one step of an event."""
    if isinstance(one, PureRelease):
        return pure(one.epsilon, grid)
    if isinstance(one, OccurringGaussian):
        return mirrored(one.occurrences, one.rate, one.noise_multiplier, grid)
    if isinstance(one, VanishingGaussian):
        return vanishing(one.occurrences, one.rate, one.noise_multiplier, grid)
    relation = (
        dp.NeighboringRelation.REPLACE_ONE
        if one.relation == "replace"
        else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    return dp_losses.from_gaussian_mechanism(
        one.noise_multiplier,
        value_discretization_interval=grid,
        sampling_prob=one.rate,
        neighboring_relation=relation,
    )


def gaussian(multiplier: float, grid: float) -> Distribution:
    """The distribution of one Gaussian release."""
    return dp_losses.from_gaussian_mechanism(multiplier, value_discretization_interval=grid)


def reach_of(one: SampledGaussian | OccurringGaussian | VanishingGaussian | PureRelease) -> float:
    """The largest loss of one step that gets a point of the grid."""
    if isinstance(one, PureRelease):
        return one.epsilon
    if isinstance(one, SampledGaussian):
        shift = (2 if one.relation == "replace" else 1) / one.noise_multiplier
        return _reach(np.ones(1), np.array([shift]))
    values, masses, _ = occurrences(one.occurrences, one.rate)
    return _reach(masses, (2 if isinstance(one, OccurringGaussian) else 1) * values / one.noise_multiplier)


def _mixtures(up: Array, down: Array, masses: Array, left_out: float) -> Curve:
    """The curve of ``sum masses N(up, 1)`` against ``sum masses N(down, 1)``, where up >= 0 >= down.

    The loss grows with the outcome, so the best test is a half-line; its start is computed by Newton's
    method. An error of the start makes the divergence too small by about its square.
    """
    logs = np.log(masses)

    def loss(x: Array) -> tuple[Array, Array]:
        ups, up_mean = _tilted(logs - up * up / 2, up, x)
        downs, down_mean = _tilted(logs - down * down / 2, down, x)
        return ups - downs, up_mean - down_mean

    ends = (float(down[-1]) - _REACH - 1.0, float(up[-1]) + _REACH + 1.0)
    rough = np.linspace(*ends, 20_001)
    rough_loss = np.concatenate([loss(x)[0] for x in np.array_split(rough, 4)])

    def part(epsilons: Array) -> Array:
        x = np.interp(epsilons, rough_loss, rough)
        inside = (epsilons > rough_loss[0]) & (epsilons < rough_loss[-1])
        for _ in range(2):
            value, slope = loss(x)
            step = np.where(inside, (epsilons - value) / np.maximum(slope, 1e-300), 0.0)
            x = np.clip(x + step, *ends)
        value, slope = loss(x)
        gap = np.where(inside, np.abs(value - epsilons), 0.0)
        first = masses @ special.ndtr(up[:, None] - x)
        with np.errstate(
            divide="ignore"
        ):  # a second term that underflows to 0 is too small, so the difference is too large
            second = np.exp(epsilons + np.log(masses @ special.ndtr(down[:, None] - x)))
        # what the half-line misses: at most the gap times the mass between it and the best one
        missed = gap * np.minimum(1.0, gap / np.maximum(slope, 1e-300))
        return np.asarray(np.maximum(first - second, 0.0) + left_out + missed)

    def curve(epsilons: Array) -> Array:
        pieces = range(0, len(epsilons), _AT_ONCE)  # all at once may take gigabytes
        return np.concatenate([part(epsilons[k : k + _AT_ONCE]) for k in pieces])

    return curve


def _tilted(logs: Array, means: Array, x: Array) -> tuple[Array, Array]:
    """``log sum exp(logs + means x)`` for each x, and its derivative."""
    terms = logs[:, None] + np.outer(means, x)
    top = terms.max(axis=0)
    weights = np.exp(terms - top)
    total = weights.sum(axis=0)
    return top + np.log(total), (means @ weights) / total


def _dots(curve: Curve, reach: float, grid: float) -> Any:
    """The distribution that dominates a curve, on the points of a grid within reach."""
    points = max(math.ceil(reach / grid), 1)
    epsilons = grid * np.arange(-points, points + 1)
    with np.errstate(over="ignore"):  # an overflow gives minus infinity, and the maximum of it and 0 is 0
        deltas = np.maximum(curve(epsilons), np.maximum(0.0, -np.expm1(epsilons)))
    falling = np.maximum.accumulate(deltas[::-1])[::-1]
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        grid, -points, points, np.minimum(falling, 1.0)
    )
