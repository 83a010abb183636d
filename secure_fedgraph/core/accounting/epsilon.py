"""Epsilon of what was released, by the right accountant, whatever its kind.

Three accountants, each for the releases of which it is an upper bound:

- the exact curve, where every release is continuous Gaussian: they compose to one (Dong, Roth, Su 2022);
- privacy loss distributions (dp-accounting's PLD), for continuous noise with sampling, and pure epsilon;
- Rényi and concentrated differential privacy, wherever it gives the smaller figure.

Discrete noise costs no more than continuous noise that is a little smaller and was rounded
(:meth:`~secure_fedgraph.core.accounting.events.DiscreteRelease.continuous`), so all three cover it.

``docs/guarantees.md`` has the proofs. For releases chosen after seeing earlier ones: ``filter``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from secure_fedgraph.core.accounting import pld as losses
from secure_fedgraph.core.accounting.events import (
    DiscreteRelease,
    Event,
    GaussianRelease,
    OccurringGaussian,
    PureRelease,
    SampledGaussian,
    SamplingError,
    VanishingGaussian,
    unnoised,
    without_noise,
)
from secure_fedgraph.core.accounting.rdp import curve_of, epsilon_of
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.loading import postponed

dp = postponed("dp_accounting")
Events = Mapping[Event, int] | Iterable[Event]

EXACT, PLD, RDP, SUM, NONE = "exact-gaussian", "pld", "rdp", "sum", "none"
_NO_NOISE = 1e6
"""Epsilon is at least mu**2 / 2: for a larger mu the search overflows, and nothing is protected."""
COARSE = 300.0
"""An epsilon above this protects nothing: its Rényi bound is enough, and costs no memory."""
_FLOAT = 1e-14
"""How much of delta floating point may lose in the Fourier transform, for each step."""
_GRIDS_APART = 1.1
"""Grids of losses differ by at least this factor: epsilons at deltas that are nearly equal share one."""


@dataclass(frozen=True)
class Spent:
    """An epsilon and the accountant that gave it: exact-gaussian, pld, rdp, sum (of pure ones), none.

    An infinite epsilon of ``none`` says that there is no noise; of another, that the noise is too little.
    """

    epsilon: float
    accountant: str

    def why_infinite(self, whom: str) -> str:
        """Why nothing bounds it, as half a sentence; empty where something does.

        >>> Spent(math.inf, NONE).why_infinite("a node"), Spent(4.0, RDP).why_infinite("a node")
        ('no noise protects a node', '')
        >>> Spent(math.inf, RDP).why_infinite("a node")
        'the noise for a node is too little for a finite epsilon'
        """
        if math.isfinite(self.epsilon):
            return ""
        if self.accountant == NONE:
            return f"no noise protects {whom}"
        return f"the noise for {whom} is too little for a finite epsilon"


WITHOUT = Spent(math.inf, NONE)
"""Of what left without noise."""


def check_delta(delta: float) -> float:
    """The delta, once it is checked.

    Raises:
        BadInput: outside (0, 1).
    """
    if not (isinstance(delta, int | float) and 0 < delta < 1):
        raise BadInput(f"delta {delta} must lie between 0 and 1; 1e-5 is usual")
    return float(delta)


def counted(events: Events) -> dict[Event, int]:
    """Events that occur, each with how often; steps of equal steps are added up."""
    counts: Counter[Event] = Counter()
    for one, times in events.items() if isinstance(events, Mapping) else ((one, 1) for one in events):
        if type(times) is not int or times < 0:
            raise BadInput(f"an event counts a whole number of times, not {times!r}")
        if isinstance(one, SampledGaussian | OccurringGaussian | VanishingGaussian):
            one, times = replace(one, steps=1), times * one.steps
        if times:
            counts[_without_sampling(one)] += times
    return dict(counts)


def _without_sampling(one: Event) -> Event:
    """A rate of 1 is no sampling: such a step is a Gaussian release."""
    if isinstance(one, SampledGaussian) and one.rate == 1:
        return GaussianRelease(one.noise_multiplier / (2 if one.relation == "replace" else 1))
    if isinstance(one, OccurringGaussian) and one.rate == 1:
        return GaussianRelease(one.noise_multiplier / (2 * one.occurrences))
    if isinstance(one, VanishingGaussian) and one.rate == 1:
        return GaussianRelease(one.noise_multiplier / one.occurrences)
    return one


def epsilon(events: Events, delta: float) -> Spent:
    """Epsilon of these releases, composed.

    Guarantees:
        - never below the true epsilon: distributions of losses are rounded up, floating point's share and
          the sampler's distance from its ideal are taken off delta;
        - infinite where one release carries no noise.

    Args:
        events: what was released, or how often each. What is released may depend on earlier releases; how
            much noise it gets and how many there are may not. Where these too depend on earlier releases,
            use a :class:`~secure_fedgraph.core.accounting.filter.Filter`.
        delta: the failure probability.

    Raises:
        BadInput: for a delta outside (0, 1).

    >>> epsilon([GaussianRelease(1.0)], 1e-5).accountant
    'exact-gaussian'
    >>> epsilon([GaussianRelease(1.0), GaussianRelease(0.0)], 1e-5).epsilon
    inf
    """
    return _epsilon(frozenset(counted(events).items()), check_delta(delta))


def _epsilon(counts: frozenset[tuple[Event, int]], delta: float) -> Spent:
    spent, rounded = _spent(counts, delta), _rounded(counts)
    if rounded is None or not math.isfinite(spent.epsilon):
        return spent
    return min(spent, _spent(rounded, delta), key=lambda one: one.epsilon)


def _rounded(counts: frozenset[tuple[Event, int]]) -> frozenset[tuple[Event, int]] | None:
    """The same releases with continuous noise, rounded, in the place of discrete noise; None without any."""
    changed: Counter[Event] = Counter()
    for one, times in counts:
        parts = one.continuous() if isinstance(one, DiscreteRelease) else (one, 0.0)
        if parts is None:
            return None
        changed[parts[0]] += times
        if parts[1]:
            changed[SamplingError(parts[1])] += times
    return frozenset(changed.items()) if any(isinstance(o, DiscreteRelease) for o, _ in counts) else None


def _spent(counts: frozenset[tuple[Event, int]], delta: float) -> Spent:
    distance = math.fsum(
        times * one.total_variation for one, times in counts if isinstance(one, SamplingError)
    )
    events = frozenset((one, times) for one, times in counts if not isinstance(one, SamplingError))
    spent = _of_ideal(events, delta)
    # the least epsilon of the ideal noise at what the sampler's distance leaves of delta
    while distance and math.isfinite(spent.epsilon):
        delta_left = delta - (1 + math.exp(min(spent.epsilon, 700.0))) * distance
        more = _of_ideal(events, delta_left) if delta_left > 0 else Spent(math.inf, spent.accountant)
        if more.epsilon <= spent.epsilon * (1 + 1e-9):
            return Spent(spent.epsilon * (1 + 1e-9), more.accountant)
        spent = more
    return spent


@lru_cache(maxsize=4096)
def _of_ideal(counts: frozenset[tuple[Event, int]], delta: float) -> Spent:
    events = dict(counts)
    if not events:
        return Spent(0.0, NONE)
    gaussians = {one: times for one, times in events.items() if isinstance(one, GaussianRelease)}
    discrete = any(isinstance(one, DiscreteRelease) for one in events)
    if any(unnoised(one) for one in events):
        return Spent(math.inf, NONE)
    if any(without_noise(one) for one in events):
        return Spent(math.inf, RDP if discrete else EXACT if len(gaussians) == len(events) else PLD)
    if len(gaussians) == len(events):
        return Spent(exact_gaussian(_mu(gaussians), delta), EXACT)
    bounds = [Spent(renyi(events, delta), RDP)]
    if all(isinstance(one, PureRelease) for one in events):
        total = math.fsum(one.epsilon * times for one, times in events.items())  # type: ignore[attr-defined]
        bounds.append(Spent(total, SUM))
    if not discrete and 0 < bounds[0].epsilon <= COARSE:
        bounds.append(Spent(_by_losses(events, gaussians, delta, bounds[0].epsilon), PLD))
    return min(bounds, key=lambda bound: bound.epsilon)


def _mu(gaussians: Mapping[GaussianRelease, int]) -> float:
    return math.hypot(*(math.sqrt(times) / one.noise_multiplier for one, times in gaussians.items()))


def exact_gaussian(mu: float, delta: float) -> float:
    """Epsilon of Gaussian releases whose squared inverse multipliers add up to ``mu**2``.

    References:
        Dong, Roth, Su, Gaussian Differential Privacy, 2022, corollary 3.3; Balle and Wang, ICML 2018,
        theorem 8.
    """
    if mu > _NO_NOISE:
        return math.inf
    with np.errstate(divide="ignore"):  # the logarithm of a delta of zero, on the way to a tiny epsilon
        return float(dp.get_epsilon_gaussian(1 / mu, delta)) if mu else 0.0


def renyi(events: Mapping[Event, int], delta: float) -> float:
    """Epsilon by Rényi orders, of counted events whose number and noise are fixed beforehand."""
    curve = sum((times * curve_of(one) for one, times in events.items()), np.zeros(1))
    distance = math.fsum(
        times * one.total_variation for one, times in events.items() if isinstance(one, DiscreteRelease)
    )
    return epsilon_of(curve, delta, distance)


def _by_losses(
    events: Mapping[Event, int], gaussians: Mapping[GaussianRelease, int], delta: float, about: float
) -> float:
    """Epsilon by composed distributions of losses; infinite where doubles are too coarse for that delta."""
    sampled: dict[Any, int] = {one: times for one, times in events.items() if one not in gaussians}
    target = delta - _FLOAT * (1 + sum(sampled.values()))
    if target < delta / 2:
        return math.inf
    reach = max(losses.reach_of(one) for one in sampled)
    grid = grid_for(_GRIDS_APART ** math.floor(math.log(about, _GRIDS_APART)), reach, sum(sampled.values()))
    mu = _mu(gaussians) if gaussians else 0.0
    return float(_composed(frozenset(sampled.items()), mu, grid).get_epsilon_for_delta(target))


@lru_cache(maxsize=32)
def _composed(sampled: frozenset[tuple[Any, int]], mu: float, grid: float) -> Any:
    """The loss distribution of counted steps and of Gaussian releases together; the same for every delta."""
    parts = [losses.step_of(one, grid).self_compose(times) for one, times in sampled]
    if mu:
        parts.append(losses.gaussian(1 / mu, grid))
    return reduce(lambda a, b: a.compose(b), parts)


def grid_for(about: float, reach: float, steps: int) -> float:
    """The width of a grid of losses: fine against the expected epsilon and against one step's share of it.

    A coarser grid gives an upper bound too, only larger: at a tenth of a step's deviation by 0.1 %.
    """
    return max(about / max(8_000, 50 * math.sqrt(steps)), reach / losses.MOST_POINTS)
