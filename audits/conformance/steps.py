"""Conformance of noisy training steps and of the accountants: coins, grid, width, and floors of epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import dp_accounting as dp
import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import binom, chi2, norm

from secure_fedgraph.audits.conformance.calls import SameSeeds
from secure_fedgraph.audits.record import LEVEL, Finding
from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.core.accounting.events import (
    DiscreteRelease,
    Event,
    GaussianRelease,
    OccurringGaussian,
    PureRelease,
    SampledGaussian,
)
from secure_fedgraph.core.channel import UnitContributionSampled
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.privacy.dp_sgd import SIGMA, PrivateSteps, Training

RECORDS, WIDTH, STEPS = 200, 64, 400


class _GradientRecorder(torch.optim.SGD):
    """Notes every gradient that it is handed."""

    def __init__(self, parameter: torch.nn.Parameter) -> None:
        super().__init__([parameter], lr=1.0)
        self.noted: list[np.ndarray] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Notes one more gradient."""
        self.noted.append(self.param_groups[0]["params"][0].grad.numpy().copy())


def _watched(private_steps: PrivateSteps, steps: int) -> tuple[np.ndarray, list[set[int]]]:
    """Noisy gradients ``[steps, WIDTH]`` of records without any, and which records each step asked for."""
    asked: list[set[int]] = []
    p = torch.nn.Parameter(torch.zeros(WIDTH, dtype=torch.float64))
    recorder = _GradientRecorder(p)

    def nowhere(chosen: torch.Tensor) -> dict[str, torch.Tensor]:
        asked[-1] |= set(chosen.tolist())
        return {"p": torch.zeros(len(chosen), WIDTH)}

    training = Training(replace(private_steps, steps=1), "zero-out")
    for _ in range(steps):
        asked.append(set())
        training.run(recorder, {"p": p}, RECORDS, nowhere)
    return np.array(recorder.noted), asked


def steps(
    private_steps: PrivateSteps,
    same_seeds: SameSeeds | None = None,
    charged: float | None = None,
    level: float = LEVEL,
) -> list[Finding]:
    """Checks noisy steps on records whose gradients are zero: only noise and coins are left.

    Args:
        private_steps: the steps.
        same_seeds: sets the global generators; without it seeds are not checked.
        charged: the rate that is charged; by default the one of the events.
        level: of all tests together.
    """
    noted, asked = _watched(private_steps, STEPS)
    if charged is None:
        charged = next(e.rate for e in private_steps.events(1, "zero-out", WIDTH) if hasattr(e, "rate"))
    alpha = level / 8
    findings = [*_grid(private_steps, noted, asked), *_coins(asked, charged, alpha)]
    whole = noted * max(private_steps.rate * RECORDS, 1.0) / (private_steps.noise * private_steps.clip)
    total = float(np.square(whole).sum())
    low, high = chi2.ppf([alpha, 1 - alpha], noted.size)
    if not low <= total <= high:
        findings.append(
            Finding("noise", "steps", f"{math.sqrt(total / noted.size):.4g} of the noise that is claimed")
        )
    apart = float(np.square(np.diff(whole, axis=0)).sum(axis=1).min())
    if apart < 2 * chi2.ppf(alpha / STEPS, WIDTH):
        findings.append(Finding("repeated noise", "steps", "two steps carry nearly the same noise"))
    return findings + (seeded(private_steps, same_seeds) if same_seeds is not None else [])


def seeded(private_steps: PrivateSteps, same_seeds: SameSeeds) -> list[Finding]:
    """That no seed repeats a step's noise or coins."""
    twice = []
    for _ in range(2):
        with same_seeds():
            twice.append(_watched(private_steps, 4))
    findings = []
    if np.mean(twice[0][0] == twice[1][0]) > 0.2:
        findings.append(Finding("seeded noise", "steps", "the same seeds, the same noise"))
    if private_steps.rate < 1 and twice[0][1] == twice[1][1]:
        findings.append(
            Finding("seeded coins", "steps", "the same seeds, the same batches: no amplification")
        )
    return findings


def _grid(private_steps: PrivateSteps, noted: np.ndarray, asked: list[set[int]]) -> Iterator[Finding]:
    """In every step the noise is on the grid, divided by the public number of records."""
    step = private_steps.noise * private_steps.clip / SIGMA

    def whole(rows: np.ndarray, over: float) -> bool:
        scaled = rows * over / step
        return bool(np.abs(scaled - np.rint(scaled)).max() < 1e-3)

    wrong = [i for i, rows in enumerate(noted) if not whole(rows, max(private_steps.rate * RECORDS, 1.0))]
    if wrong and all(whole(noted[i], max(len(asked[i]), 1)) for i in wrong):
        yield Finding(
            "denominator", "steps", "a step is divided by how many records were drawn, which is secret"
        )
    elif wrong:
        yield Finding("grid", "steps", "noise off the grid: the last bits of floating point leak")


def coins_of(bound: Bound, alpha: float) -> list[Finding]:
    """That a channel's coins take each unit at the rate that its uploads are charged for."""
    contribution = bound.channel.unit_contribution
    if not isinstance(contribution, UnitContributionSampled):
        return []
    asked = [set(bound.coins(RECORDS).tolist()) for _ in range(STEPS)]
    charged = {
        one.rate for events in bound.releases().values() for one in events if isinstance(one, SampledGaussian)
    } or {contribution.rate}
    return [finding for rate in charged for finding in _coins(asked, rate, alpha)]


def _coins(asked: list[set[int]], rate: float, alpha: float) -> Iterator[Finding]:
    """Each record is drawn in each step by a coin of its own."""
    rounds, table = len(asked), np.zeros((len(asked), RECORDS))
    for row, chosen in zip(table, asked, strict=True):
        row[list(chosen)] = 1
    low, high = binom.interval(1 - 2 * alpha, table.size, rate)
    if not low <= table.sum() <= high:
        yield Finding("rate", "coins", f"{table.mean():.4g} of the records a step, {rate:.4g} are charged")
        return
    if rate == 1:
        return
    variance = rate * (1 - rate)
    for what, axis, parts in (("a step's number", 1, rounds), ("a record's number", 0, RECORDS)):
        other = table.size // parts
        spread = float(np.square(table.sum(axis) - other * rate).sum() / (other * variance))
        # the sum of squares is a chi-square one nearly: a factor of slack for the binomial's fourth moment
        if not chi2.ppf(alpha, parts) * 0.8 <= spread <= chi2.ppf(1 - alpha, parts) * 1.25:
            yield Finding(
                "coins", "coins", f"{what} of draws varies {spread / parts:.3g} times as much as coins do"
            )
    both = float((table[1:] * table[:-1]).sum())
    pairs = (rounds - 1) * RECORDS
    wide = norm.isf(alpha) * math.sqrt(pairs * rate**2 * (1 - rate**2) * 2)
    if abs(both - pairs * rate**2) > wide:
        yield Finding(
            "coins", "coins", f"steps in a row share {both:.0f} records, {pairs * rate**2:.0f} by chance"
        )


# --- floors: epsilons that no right accountant is below, computed by other means


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
