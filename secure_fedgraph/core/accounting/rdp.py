"""Rényi differential privacy of each event, on one set of orders, and its conversion to epsilon."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from secure_fedgraph.core.accounting import events
from secure_fedgraph.core.accounting.pld import occurrences
from secure_fedgraph.loading import postponed

dp, stats = postponed("dp_accounting"), postponed("scipy.stats")
Array = np.ndarray
ORDERS = np.array(
    [1.02, 1.05]
    + [1 + k / 10 for k in range(1, 100)]
    + list(range(11, 64))
    + [64, 80, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 16384]
)
"""Small orders are best for large epsilons, large orders for small ones."""
_SUMMED_UP_TO = 512
"""The largest order of a sampled Gaussian that dp-accounting sums up; larger ones take long."""
_EXACT_TAU = 10_000
_ROUNDS = 1000
_BLOCKS = 2000
_RARE = 1e-80
"""Counts of touched gradients rarer than this are bounded less tightly; large orders weigh even those."""
_WIDTH, _FURTHEST, _WIDEST = 0.02, 600.0, 20.0
"""Of the quadrature, in standard deviations: the distance of its points, how far they go, the widest mixture
(its density's complex zeros are pi / widest away, and the error is exp(-2 pi**2 / widest / width))."""


@lru_cache(maxsize=4096)
def curve_of(one: events.Event) -> Array:
    """The Rényi divergence of an event at each of :data:`ORDERS`, in both directions; steps included.

    Guarantees:
        - an upper bound at every order, infinite where none is known.
    """
    if events.without_noise(one):
        curve = np.full(ORDERS.shape, math.inf)
    elif isinstance(one, events.GaussianRelease | events.DiscreteRelease):
        curve = concentrated(one) * ORDERS
    elif isinstance(one, events.SampledGaussian):
        curve = one.steps * _sampled(one.noise_multiplier, one.rate, one.relation)
    elif isinstance(one, events.OccurringGaussian):
        curve = one.steps * _mixtures(one.occurrences, one.rate, 1 / one.noise_multiplier, mirrored=True)
    elif isinstance(one, events.VanishingGaussian):
        curve = one.steps * _mixtures(one.occurrences, one.rate, 1 / one.noise_multiplier, mirrored=False)
    elif isinstance(one, events.PureRelease):
        curve = _pure(one.epsilon)
    else:
        raise TypeError(f"no accountant knows {one!r}")
    curve.setflags(write=False)
    return curve


def concentrated(one: events.GaussianRelease | events.DiscreteRelease) -> float:
    """The rho of zero-concentrated differential privacy: the Rényi divergence over its order, at every order.

    A sum of discrete Gaussians is no discrete Gaussian; ``tau`` bounds how far it is from one. The paper adds
    a term to the divergence once at every order; here it is multiplied by the order: larger, and linear.

    References:
        Bun and Steinke, Concentrated Differential Privacy, TCC 2016, proposition 6; Kairouz, Liu, Steinke,
        The Distributed Discrete Gaussian Mechanism, ICML 2021, proposition 14.
    """
    if not one.noise_multiplier:
        return math.inf
    mu = 1 / one.noise_multiplier
    if isinstance(one, events.GaussianRelease):
        return mu * mu / 2
    t = tau(one.shares, one.sigma)
    return min(mu * mu / 2 + t * one.width, (mu + t * math.sqrt(one.width)) ** 2 / 2)


@lru_cache(maxsize=1024)
def tau(shares: int, sigma: float) -> float:
    """``10 * sum over k < shares of exp(-2 pi**2 sigma**2 k / (k + 1))``, or more."""
    if shares <= _EXACT_TAU:
        k = np.arange(1, shares)
        return float(10 * np.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)).sum())
    return 10 * (shares - 1) * math.exp(-((math.pi * sigma) ** 2))  # every term is at most the first


@lru_cache(maxsize=1024)
def _sampled(multiplier: float, rate: float, relation: str) -> Array:
    """One step, each record by itself; at whole orders also by dp-accounting's finite sum.

    Its series at fractional orders does not converge for much noise.
    """
    if relation == "replace":
        return _mixtures(1, rate, 1 / multiplier, mirrored=True)
    curve = _mixtures(1, rate, 1 / multiplier, mirrored=False).copy()
    whole = (ORDERS % 1 == 0) & (ORDERS <= _SUMMED_UP_TO)
    accountant = dp.rdp.RdpAccountant(orders=ORDERS[whole])
    accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)))
    curve[whole] = np.minimum(curve[whole], accountant.rdp)
    return curve


def _rare(count: int, rate: float, common: Array) -> tuple[Array, Array]:
    """Values and log-probabilities that stand for the binomial counts that :func:`occurrences` left out.

    They are rare, but a large order gives them weight. A block of large counts is taken as its largest,
    with a geometric series for its probability; small counts are taken as the smallest common one.
    """
    law, low, high = stats.binom(count, rate), common[0], common[-1]
    values, logs = ([], []) if low == 0 else ([np.array([low])], [np.array([math.log(_RARE)])])
    if high < count:
        edges = np.unique(np.geomspace(high + 1, count + 1, _BLOCKS).round())
        edges = np.append(edges[edges <= count], count + 1)
        ratio = (count - edges[:-1]) * rate / ((edges[:-1] + 1) * (1 - rate))
        values.append(edges[1:] - 1)
        # so far above the mean each count is rarer than the one before, at least by this ratio
        logs.append(law.logpmf(edges[:-1]) - np.log1p(-np.minimum(ratio, 0.99)))
    return np.concatenate([*values, np.zeros(0)]), np.concatenate([*logs, np.zeros(0)])


def _moments(values: Array, logs: Array, shift: float) -> Array:
    """``log sum of p_j exp(a (a - 1) (shift j)**2 / 2)`` at each order."""
    if not values.size:
        return np.full(ORDERS.shape, -math.inf)
    exponents = np.outer(ORDERS * (ORDERS - 1) / 2, (shift * values) ** 2) + logs
    top = exponents.max(axis=1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)))


def _coupled(count: int, rate: float, change: float) -> tuple[Array, Array]:
    """``log E exp(a (a - 1) (change J)**2 / 2)`` at each order, and the part of rare counts in it."""
    values, masses, _ = occurrences(count, rate, _RARE)
    rare = _moments(*_rare(count, rate, values), change)
    return np.asarray(np.logaddexp(_moments(values, np.log(masses), change), rare)), rare


@lru_cache(maxsize=1024)
def _mixtures(count: int, rate: float, shift: float, mirrored: bool) -> Array:
    """One step where a unit touches J gradients, J binomial: by quadrature, or else by the coupled pair.

    The worst pair is ``E N(J shift, 1)`` against its mirror image, or against ``N(0, 1)`` where touched
    gradients vanish, the larger of both ways (``docs/guarantees.md``). Its integrand ``p**a q**(1 - a)`` is
    smooth and falls off like a Gaussian, for which the trapezoid rule errs by less than doubles do. Orders
    whose integral differs with half of the points keep the coupled pair's bound. Rare counts stay coupled
    (joint convexity).
    """
    moments, rare = _coupled(count, rate, (2 if mirrored else 1) * shift)
    values, masses, _ = occurrences(count, rate, _RARE)
    means, logs = values * shift, np.log(masses)
    ends = (2 * ORDERS - 1) * means[-1] + 12
    usable = np.flatnonzero(ends <= _FURTHEST) if means[-1] <= _WIDEST else np.zeros(0, dtype=int)
    if usable.size:
        most = math.ceil(ends[usable[-1]] / _WIDTH)
        x = _WIDTH * np.arange(-most, most + 1)
        log_p = _log_mixture(logs, means, x)
        log_q = log_p[::-1] if mirrored else _log_mixture(np.log(masses.sum(keepdims=True)), np.zeros(1), x)
        ways = [(log_p, log_q)] if mirrored else [(log_p, log_q), (log_q, log_p)]
        for k in usable:
            integral = max(_integral(ORDERS[k] * up + (1 - ORDERS[k]) * down) for up, down in ways)
            moments[k] = min(moments[k], np.logaddexp(integral + 1e-9, rare[k]))
    return np.asarray(np.maximum(moments, 0.0) / (ORDERS - 1))


def _log_mixture(logs: Array, means: Array, x: Array) -> Array:
    """The logarithm of the density of a mixture of Gaussians with variance 1."""
    total = np.full(x.shape, -math.inf)
    for log_mass, mean in zip(logs, means, strict=True):
        total = np.logaddexp(total, log_mass - (x - mean) ** 2 / 2)
    return np.asarray(total - math.log(2 * math.pi) / 2)


def _integral(logs: Array) -> float:
    """The logarithm of an integral over equally spaced points; infinite if half of the points disagree."""
    top = float(logs.max())
    weights = np.exp(logs - top)
    whole, half = float(weights.sum() * _WIDTH), float(weights[::2].sum() * 2 * _WIDTH)
    return top + math.log(whole) if abs(whole - half) <= 1e-9 * whole else math.inf


def _pure(epsilon: float) -> Array:
    """Randomised response between two answers is the worst of its epsilon (Mironov, CSF 2017, prop. 6)."""
    more, less = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    logs = np.logaddexp(ORDERS * more + (1 - ORDERS) * less, ORDERS * less + (1 - ORDERS) * more)
    return np.asarray(np.minimum(np.maximum(logs, 0.0) / (ORDERS - 1), epsilon))


def epsilon_of(curve: Array, delta: float, distance: float = 0.0) -> float:
    """Epsilon of a Rényi curve, where each world's noise is within a distance of the noise accounted for.

    Each of the two worlds differs by the distance from its ideal, which takes ``(1 + e**epsilon)`` times the
    distance off delta; epsilon is the least fixed point of that.

    Args:
        curve: at :data:`ORDERS`.
        delta: the failure probability.
        distance: total variation, added over all releases.
    """
    if not distance:
        return float(dp.rdp.compute_epsilon(ORDERS, curve, delta)[0])
    epsilon = 0.0
    for _ in range(_ROUNDS):
        delta_left = delta - (1 + math.exp(min(epsilon, 700.0))) * distance
        if delta_left <= 0:
            break
        needed = float(dp.rdp.compute_epsilon(ORDERS, curve, delta_left)[0])
        if needed <= epsilon:
            return epsilon
        epsilon = needed + 1e-6 * (1 + needed)  # it rises to the fixed point, and ends a little above it
    return math.inf
