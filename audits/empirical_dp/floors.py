"""Floors of the accountants: epsilons that no right accountant is below, worked out by other means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import dp_accounting as dp
import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, norm

from secure_fedgraph.audits.record import Finding
from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.core.accounting.events import (
    DiscreteRelease,
    Event,
    GaussianRelease,
    OccurringGaussian,
    PureRelease,
    SampledGaussian,
)


def floors() -> Iterator[tuple[str, list[Event], float, float]]:
    """(what, events, delta, an epsilon that they cannot be below)."""
    for multiplier, delta in ((0.06, 0.01), (0.3, 1e-5), (1.0, 1e-5), (5.0, 1e-6)):
        yield "a Gaussian release", [GaussianRelease(multiplier)], delta, _gaussian(1 / multiplier, delta)
    yield "four Gaussian releases", [GaussianRelease(2.0)] * 4, 1e-5, _gaussian(1.0, 1e-5)
    for sigma, far in ((2.0, 1), (2.0, 2), (3.0, 3)):
        release = DiscreteRelease(sigma / far, sigma=sigma, width=1)
        yield "discrete noise", [release], 1e-5, _discrete(sigma, far, 1e-5)
    for noise, rate, many in ((1.0, 0.01, 1000), (2.0, 0.1, 200)):
        yield (
            "sampled steps",
            [SampledGaussian(noise, rate, many, "zero-out")],
            1e-5,
            _sampled(noise, rate, many),
        )
    for noise, rate, many in ((4.0, 0.2, 5), (10.0, 0.05, 43)):
        one = OccurringGaussian(noise, rate, 1, many)
        yield "a step with several records a unit", [one], 1e-5, _mirrored(noise, rate, many, 1e-5)
    yield "pure releases", [PureRelease(1.0)], 1e-9, 1.0 - 1e-6


def accountants(about: str = "") -> list[Finding]:
    """That no accountant reports less than the floors.

    Each of these mistakes is below one of them: a continuous Gaussian's curve for discrete noise, the
    classical formula, the central limit (Opacus' ``GaussianAccountant``), one record in place of several.

    Args:
        about: only floors whose name has this in it.
    """
    findings = []
    for what, events, delta, floor in floors():
        if about not in what:
            continue
        reported = epsilon.epsilon(events, delta).epsilon
        if reported < floor * (1 - 1e-4):
            findings.append(
                Finding(
                    "accountants", what, f"epsilon {reported:.4g} is reported, at least {floor:.4g} is spent"
                )
            )
    return findings


def _root(profile: Callable[[float], float], delta: float) -> float:
    """The epsilon at which a hockey-stick curve falls to delta."""
    return float(brentq(lambda e: profile(e) - delta, 0.0, 600.0, xtol=1e-10)) if profile(0) > delta else 0.0


def _gaussian(mu: float, delta: float) -> float:
    """Balle and Wang's curve, in logarithms."""

    def profile(e: float) -> float:
        return float(norm.cdf(mu / 2 - e / mu) - math.exp(min(e + norm.logcdf(-mu / 2 - e / mu), 700)))

    return _root(profile, delta)


@lru_cache
def _discrete(sigma: float, far: int, delta: float) -> float:
    """The exact epsilon of a discrete Gaussian and its shift by whole steps, summed up."""
    k = np.arange(-80 * int(sigma) - far, 80 * int(sigma) + far + 1)
    weight = np.exp(-(k.astype(float) ** 2) / (2 * sigma**2))
    p, q = weight / weight.sum(), np.exp(-((k - far).astype(float) ** 2) / (2 * sigma**2)) / weight.sum()
    return _root(lambda e: float(np.maximum(p - math.exp(e) * q, 0).sum()), delta)


@lru_cache
def _sampled(noise: float, rate: float, many: int) -> float:
    """dp-accounting's optimistic estimate: a lower bound on the true one."""
    optimistic = dp.pld.privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=1e-4,
        pessimistic_estimate=False,
        use_connect_dots=False,
    )
    return float(optimistic.self_compose(many).get_epsilon_for_delta(1e-5))


@lru_cache
def _mirrored(noise: float, rate: float, many: int, delta: float) -> float:
    """One step of the mirrored pair, by the half-lines that are its best tests."""
    j = np.arange(many + 1)
    weight = binom.pmf(j, many, rate)
    t = np.linspace(-10 * noise - many, 10 * noise + many, 40_001)[:, None]
    p, q = (norm.sf((t - sign * j) / noise) @ weight for sign in (1, -1))
    return _root(lambda e: float((p - math.exp(e) * q).max()), delta)
