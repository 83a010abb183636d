"""Whether events are within a budget is answered as by computing it each time, and computed rarely."""

from __future__ import annotations

from collections import Counter

import pytest

from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.events import Event, GaussianRelease, PureRelease, SampledGaussian
from secure_fedgraph.core.spending import budget as spending
from secure_fedgraph.core.spending.budget import Budget

STEP, ONCE, PURE = SampledGaussian(2.0, 0.1, 1, "zero-out"), GaussianRelease(3.0), PureRelease(0.1)


@pytest.mark.parametrize("every", [(STEP,), (ONCE,), (ONCE, PURE), (STEP, ONCE)])
def test_the_answers_are_those_of_the_accountant(every: tuple[Event, ...]) -> None:
    budget, spent = Budget(1.5, 1e-5), Counter[Event]()
    for _ in range(16):
        for one in every:
            spent[one] += 1
            assert budget.holds(spent) == (budget.epsilon_of(spent) <= budget.epsilon)
    assert not budget.holds(Counter({ONCE: 10**6}))
    assert budget.holds({})


def test_a_long_run_computes_a_few_of_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    computed = accounting.epsilon

    def counted(events: Counter[Event], delta: float) -> accounting.Spent:
        asked.append(sum(events.values()))
        return computed(events, delta)

    monkeypatch.setattr(spending.accounting, "epsilon", counted)
    budget, rounds = Budget(6.25, 1e-6), 0
    while budget.holds({STEP: rounds + 1}):
        rounds += 1
    assert rounds > 300
    assert len(asked) < rounds / 5
    assert computed({STEP: rounds}, 1e-6).epsilon <= 6.25 < computed({STEP: rounds + 1}, 1e-6).epsilon
