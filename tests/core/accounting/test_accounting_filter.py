"""A budget for releases that are chosen by what earlier ones showed."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from secure_fedgraph.core.accounting.epsilon import epsilon
from secure_fedgraph.core.accounting.events import (
    DiscreteRelease,
    Event,
    GaussianRelease,
    OccurringGaussian,
    PureRelease,
    SampledGaussian,
)
from secure_fedgraph.core.accounting.filter import KINDS, Filter, fits
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.noise_needed import noise_for

DELTA = 1e-5
ONE = {
    "gaussian": GaussianRelease(4.0),
    "concentrated": DiscreteRelease(4.0, 5, sigma=100.0, width=10**6, total_variation=1e-14),
    "any": SampledGaussian(1.0, 0.02, 20, "zero-out"),
}


def most(one: Event, budget: Filter) -> int:
    times = 0
    while budget.fits({one: times}, one):
        times += 1
    return times


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_allowed_stays_within_the_budget(kind: str) -> None:
    one = ONE[kind]
    bound, free = (most(one, Filter(3.0, DELTA, k)) for k in (kind, None))
    assert 0 < free <= bound
    assert epsilon({one: bound}, DELTA).epsilon <= 3.0
    if kind == "gaussian":  # as if the noise had been fixed: not one release less
        assert epsilon({one: bound + 1}, DELTA).epsilon > 3.0
    else:
        assert epsilon({one: 2 * bound}, DELTA).epsilon > 3.0


def test_a_bound_kind_allows_no_other() -> None:
    assert fits([], ONE["gaussian"], 8.0, DELTA, "concentrated")
    assert not fits([], ONE["concentrated"], 8.0, DELTA, "gaussian")
    assert not fits([], ONE["any"], 8.0, DELTA, "concentrated")
    assert not fits([ONE["any"]], ONE["gaussian"], 8.0, DELTA, "gaussian")
    for one in (*ONE.values(), PureRelease(0.5), OccurringGaussian(30.0, 0.01, 10, 43)):
        assert fits([], one, 8.0, DELTA, "any")
        assert fits([], one, 8.0, DELTA)


def test_nothing_without_noise_fits() -> None:
    for kind in (None, *KINDS):
        assert not fits([], GaussianRelease(0.0), 100.0, DELTA, kind)
        assert not fits([GaussianRelease(0.0)], GaussianRelease(9.0), 100.0, DELTA, kind)


def test_the_sampler_s_distance_counts() -> None:
    rough = DiscreteRelease(50.0, sigma=100.0, width=1, total_variation=1e-9)
    fine = DiscreteRelease(50.0, sigma=100.0, width=1, total_variation=1e-18)
    assert fits([], fine, 8.0, DELTA) and not fits([], rough, 8.0, DELTA)
    assert not fits({fine: 10}, rough, 8.0, DELTA)


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_a_plan_that_fits_never_stops_half_way(kind: str | None) -> None:
    """Its parts fit as well, in whichever order they come."""
    names = KINDS[: KINDS.index(kind) + 1] if kind else KINDS
    makes = {
        "gaussian": lambda z: GaussianRelease(4 * z),
        "concentrated": lambda z: DiscreteRelease(5 * z, 5, sigma=100.0, width=10, total_variation=1e-15),
        "any": lambda z: SampledGaussian(z, 0.02, 100, "zero-out"),
    }
    budget = Filter(2.0, DELTA, kind)
    noise = noise_for(2.0, DELTA, lambda z: [makes[name](z) for name in names], budget.allows)
    plan = [makes[name](noise) for name in names]
    for order in (plan, plan[::-1]):
        for k, one in enumerate(order):
            assert budget.fits(order[:k], one)
    assert not budget.allows([makes[name](0.99 * noise) for name in names])


@pytest.mark.parametrize("kind", [None, "gaussian", "any"])
def test_an_adversary_who_chooses_by_what_it_saw(kind: str | None) -> None:
    """Much noise while the loss is high, little while it is low: the losses of 40,000 such histories.

    One hockey-stick divergence of what was allowed, by its definition, against delta. Bound to one kind the
    filter is tight for Gaussians, so the divergence comes near delta and a looser rule would pass it.
    """
    target, delta = 1.0, 0.05
    budget = Filter(target, delta, kind)
    rng = np.random.default_rng(1)
    menu = (GaussianRelease(6.0), GaussianRelease(2.5), GaussianRelease(20.0))
    known: dict[tuple[tuple[int, int, int], int], bool] = {}

    def allowed(counts: tuple[int, int, int], k: int) -> bool:
        if (counts, k) not in known:
            known[counts, k] = budget.fits(dict(zip(menu, counts, strict=True)), menu[k])
        return known[counts, k]

    divergence = []
    for _ in range(40_000):
        loss, counts = 0.0, (0, 0, 0)
        for _ in range(60):
            wanted = (0, 1, 2) if loss > 0.8 * target else (1, 0, 2)
            k = next((k for k in wanted if allowed(counts, k)), None)
            if k is None:
                break
            mu = 1 / menu[k].noise_multiplier
            loss += mu * mu / 2 + mu * rng.standard_normal()
            counts = (counts[0] + (k == 0), counts[1] + (k == 1), counts[2] + (k == 2))
        divergence.append(max(0.0, -math.expm1(target - loss)))
    mean, error = np.mean(divergence), np.std(divergence) / math.sqrt(len(divergence))
    assert mean <= delta + 4 * error
    if kind == "gaussian":
        assert mean > 0.8 * delta


def test_a_question_costs_little() -> None:
    spent = {DiscreteRelease(100.0 + k, 5, sigma=100.0, width=10**6): 30 for k in range(10)}
    fits(spent, GaussianRelease(30.0), 8.0, DELTA)
    started = time.process_time()
    for _ in range(1000):
        fits(spent, GaussianRelease(30.0), 8.0, DELTA)
    assert time.process_time() - started < 2


def test_budgets_that_are_none() -> None:
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BadInput, match="epsilon"):
            Filter(wrong, DELTA)
    with pytest.raises(BadInput, match="delta"):
        Filter(1.0, 1.0)
    with pytest.raises(BadInput, match="'gaussian'"):
        Filter(1.0, DELTA, "gausian")
