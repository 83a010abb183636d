"""The least noise that a budget needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from secure_fedgraph.core.accounting.epsilon import check_delta, epsilon
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.errors import BadInput

_LEAST_NOISE, _MOST_NOISE = 1e-3, 1e7
_SEARCH = 1e-3


def noise_for(
    epsilon_budget: float,
    delta: float,
    make: Callable[[float], Iterable[Event]],
    fits: Callable[[Iterable[Event]], bool] | None = None,
) -> float:
    """The least noise with which a plan stays within a budget, to 0.1 %, on the safe side.

    Args:
        epsilon_budget: what may be spent.
        delta: the failure probability.
        make: noise multiplier -> all events of the plan; more noise must not cost more. It may refuse a
            multiplier (BadInput), which counts as too little noise.
        fits: whether a plan stays within the budget; by default, that its :func:`epsilon` does.

    Raises:
        BadInput: for an epsilon that is not positive, a delta outside (0, 1), and a budget that no noise
            meets, with the least epsilon that some noise meets.

    >>> from secure_fedgraph.core.accounting.events import GaussianRelease
    >>> round(noise_for(4.377, 1e-5, lambda z: [GaussianRelease(z)]), 2)
    1.0
    """
    check_delta(delta)
    if not (isinstance(epsilon_budget, int | float) and 0 < epsilon_budget < math.inf):
        raise BadInput(f"epsilon {epsilon_budget} must be a positive number; 8 is usual")

    def over(multiplier: float) -> float:
        """The logarithm of what is spent over what may be: positive where the noise is too little."""
        try:
            events = list(make(multiplier))
        except BadInput:
            return math.inf
        if fits:
            return -math.inf if fits(events) else math.inf
        cost = epsilon(events, delta).epsilon
        return math.log(cost / epsilon_budget) if cost else -math.inf

    high, above = 1.0, over(1.0)
    while above > 0:
        high *= 4
        if high > _MOST_NOISE:
            least = epsilon(make(_MOST_NOISE), delta).epsilon
            raise BadInput(
                f"no noise keeps this plan within epsilon {epsilon_budget} at delta {delta}: what does not "
                f"depend on the noise costs {_up(least)} already; allow more, or release less"
            )
        above = over(high)
    low, below = high / 4, over(high / 4)
    while low > _LEAST_NOISE and below <= 0:
        high, above, low = low, below, low / 4
        below = over(low)
    return least_noise(over, low, high, _SEARCH)


def least_noise(over: Callable[[float], float], low: float, high: float, precision: float) -> float:
    """The least noise that is enough, between too little and enough, on the safe side.

    Args:
        over: noise -> the logarithm of what is spent over what may be: falling, or infinite with any sign
            where nothing else is known.
        low, high: too little, and enough.
        precision: of the result, relative.
    """
    below, above, side = over(low), over(high), 1
    while high - low > precision * high:
        middle = math.sqrt(low * high)
        if math.isfinite(below - above):  # the logarithms are nearly on a line: aim a little beside it
            middle = low * (high / low) ** (below / (below - above))
            middle = min(
                max(middle * (1 + side * precision / 3), low * (1 + precision / 9)),
                high * (1 - precision / 9),
            )
            side = -side
        log_ratio = over(middle)
        low, below, high, above = (
            (low, below, middle, log_ratio) if log_ratio <= 0 else (middle, log_ratio, high, above)
        )
    return high


def _up(value: float) -> float:
    return value if math.isinf(value) else math.ceil(value * 1000) / 1000
