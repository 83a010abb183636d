"""Whether one more release fits a budget, where later releases are planned from earlier ones.

Who plans a later run has seen the earlier one, so its noise and its length are no constants. Figures that
treat them as constants do not hold then. What holds is a rule that refuses a release before the sum of what
was spent passes a bound that was fixed first (a privacy filter). Three kinds of history have one:

- continuous Gaussian only: the squared inverse multipliers add up, as for fixed ones;
- Gaussian, continuous or discrete: the rho of concentrated privacy adds up, at one order fixed beforehand;
- anything: Rényi divergences add up at each of a few orders fixed beforehand, which share delta.

The kind of a history may itself depend on what was seen: so the three kinds share delta too.
``docs/guarantees.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from secure_fedgraph.core.accounting import events as kinds
from secure_fedgraph.core.accounting.epsilon import Events, check_delta, counted, exact_gaussian
from secure_fedgraph.core.accounting.rdp import ORDERS, concentrated, curve_of
from secure_fedgraph.core.errors import BadInput

KINDS = ("gaussian", "concentrated", "any")
_FOR_THE_SAMPLER = 0.01
"""The share of delta kept for discrete noise, which is not quite the ideal one."""
_FRACTIONS = (1.0, 0.7)
"""Of the order (less one) that is best for a Gaussian's budget. Sampled steps need smaller ones, but below a
half delta leaves no budget at all; each further order takes its share of delta from the others."""


class Filter:
    """A budget for releases one after the other, where earlier ones may decide on later ones.

    Guarantees:
        - all that was allowed, one release after the other, however chosen, is (epsilon, delta)-DP together;
        - what fits also fits if less was spent: so a plan that fits as a whole never stops half-way.

    Args:
        epsilon, delta: the budget; each kind of history gets a third of delta.

    Raises:
        BadInput: for an epsilon that is not positive, a delta outside (0, 1).
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        if not (isinstance(epsilon, int | float) and 0 < epsilon < math.inf):
            raise BadInput(f"epsilon {epsilon} must be a positive number; 8 is usual")
        self.epsilon, self.delta = float(epsilon), check_delta(delta)
        self._gaussian_delta = share = self.delta / len(KINDS)
        rest = share * (1 - _FOR_THE_SAMPLER)
        self._distance = share * _FOR_THE_SAMPLER / (1 + math.exp(min(epsilon, 700.0)))
        rhos = _curve_budget(epsilon, rest, ORDERS) / ORDERS
        self._rho, best = float(rhos.max()), ORDERS[int(rhos.argmax())]
        orders = {int(np.abs(ORDERS - (1 + f * (best - 1))).argmin()) for f in _FRACTIONS}
        self._orders = np.array(sorted(orders))
        self._curve = _curve_budget(epsilon, rest / len(orders), ORDERS[self._orders])

    def allows(self, events: Events) -> bool:
        """Whether all of these, released one after the other, stay within the budget."""
        events = counted(events)
        if self._distance_of(events) > self._distance:
            return False
        has_sampling_error = any(isinstance(one, kinds.SamplingError) for one in events)
        events = {one: times for one, times in events.items() if not isinstance(one, kinds.SamplingError)}
        kind = _kind_of(events)
        if any(kinds.without_noise(one) for one in events):
            return False
        if kind == "gaussian":
            mu = math.sqrt(2 * _rho(events))
            delta_left = self._gaussian_delta * (1 - _FOR_THE_SAMPLER * has_sampling_error)
            return exact_gaussian(mu, delta_left) <= self.epsilon
        if kind == "concentrated":
            return _rho(events) <= self._rho
        curve = sum((times * curve_of(one)[self._orders] for one, times in events.items()), np.zeros(1))
        return bool(np.any(curve <= self._curve))

    @staticmethod
    def _distance_of(events: Mapping[kinds.Event, int]) -> float:
        distances = [
            (one.total_variation, n)
            for one, n in events.items()
            if isinstance(one, kinds.DiscreteRelease | kinds.SamplingError)
        ]
        return math.fsum(distance * times for distance, times in distances)


def _kind_of(events: Mapping[kinds.Event, int]) -> str:
    if all(isinstance(one, kinds.GaussianRelease) for one in events):
        return "gaussian"
    linear = all(isinstance(one, kinds.GaussianRelease | kinds.DiscreteRelease) for one in events)
    return "concentrated" if linear else "any"


def _rho(events: Mapping[kinds.Event, int]) -> float:
    return math.fsum(times * concentrated(one) for one, times in events.items())  # type: ignore[arg-type]


def _curve_budget(epsilon: float, delta: float, orders: np.ndarray) -> np.ndarray:
    """The Rényi divergence at each order that is worth (epsilon, delta), or nothing.

    References:
        Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020, prop. 12.
    """
    divergences = epsilon - np.log1p(-1 / orders) + np.log(delta * orders) / (orders - 1)
    return np.asarray(np.where(divergences > 0, divergences, -1.0))
