"""A budget for releases that are chosen by what earlier ones showed."""

from __future__ import annotations

import math
import time
from collections import Counter

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
from secure_fedgraph.core.accounting.filter import KINDS, Filter
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
    while budget.allows({one: times + 1}):
        times += 1
    return times


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_allowed_stays_within_the_budget(kind: str) -> None:
    one = ONE[kind]
    allowed = most(one, Filter(3.0, DELTA))
    assert (
        allowed and epsilon({one: allowed}, DELTA).epsilon <= 3.0 < epsilon({one: 2 * allowed}, DELTA).epsilon
    )
    if kind == "gaussian":  # at a third of delta as if the noise had been fixed: not one release less
        assert epsilon({one: allowed + 1}, DELTA / 3).epsilon > 3.0


def test_every_kind_fits() -> None:
    for one in (*ONE.values(), PureRelease(0.5), OccurringGaussian(30.0, 0.01, 10, 43)):
        assert Filter(8.0, DELTA).allows([one])


def test_nothing_without_noise_fits() -> None:
    budget = Filter(100.0, DELTA)
    assert not budget.allows([GaussianRelease(0.0)])
    assert not budget.allows([GaussianRelease(0.0), GaussianRelease(9.0)])


def test_the_sampler_s_distance_counts() -> None:
    rough = DiscreteRelease(50.0, sigma=100.0, width=1, total_variation=1e-9)
    fine = DiscreteRelease(50.0, sigma=100.0, width=1, total_variation=1e-18)
    budget = Filter(8.0, DELTA)
    assert budget.allows([fine]) and not budget.allows([rough])
    assert not budget.allows({fine: 10, rough: 1})


def test_a_plan_that_fits_never_stops_half_way() -> None:
    """Its parts fit as well, in whichever order they come."""
    names = KINDS
    makes = {
        "gaussian": lambda z: GaussianRelease(4 * z),
        "concentrated": lambda z: DiscreteRelease(5 * z, 5, sigma=100.0, width=10, total_variation=1e-15),
        "any": lambda z: SampledGaussian(z, 0.02, 100, "zero-out"),
    }
    budget = Filter(2.0, DELTA)
    noise = noise_for(2.0, DELTA, lambda z: [makes[name](z) for name in names], budget.allows)
    plan = [makes[name](noise) for name in names]
    for order in (plan, plan[::-1]):
        for k in range(len(order)):
            assert budget.allows(order[: k + 1])
    assert not budget.allows([makes[name](0.99 * noise) for name in names])


def test_an_adversary_who_chooses_by_what_it_saw() -> None:
    """Much noise while the loss is high, little while it is low: the losses of 40,000 such histories.

    One hockey-stick divergence of what was allowed, by its definition, against the third of delta that a
    history of this kind has. There the filter is tight: the divergence comes near it, and a looser rule would
    pass it.
    """
    target, delta = 1.0, 0.05
    budget = Filter(target, delta)
    rng = np.random.default_rng(1)
    menu = (GaussianRelease(6.0), GaussianRelease(2.5), GaussianRelease(20.0))
    known: dict[tuple[tuple[int, int, int], int], bool] = {}

    def allowed(counts: tuple[int, int, int], k: int) -> bool:
        if (counts, k) not in known:
            asked = Counter(dict(zip(menu, counts, strict=True))) + Counter([menu[k]])
            known[counts, k] = budget.allows(asked)
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
    assert 0.8 * delta / 3 < mean <= delta / 3 + 4 * error


def test_a_question_costs_little() -> None:
    spent = {DiscreteRelease(100.0 + k, 5, sigma=100.0, width=10**6): 30 for k in range(10)}
    budget, asked = Filter(8.0, DELTA), {**spent, GaussianRelease(30.0): 1}
    budget.allows(asked)
    started = time.process_time()
    for _ in range(1000):
        budget.allows(asked)
    assert time.process_time() - started < 2


def test_budgets_that_are_none() -> None:
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BadInput, match="epsilon"):
            Filter(wrong, DELTA)
    with pytest.raises(BadInput, match="delta"):
        Filter(1.0, 1.0)
