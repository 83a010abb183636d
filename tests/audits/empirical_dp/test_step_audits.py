"""Noisy steps and drawn links against worst-case neighbours: never above the claim, and near it."""

from __future__ import annotations

import math

import pytest
import torch

from secure_fedgraph.audits.empirical_dp.empirical import audit_links, audit_steps, scores
from secure_fedgraph.audits.empirical_dp.worst_cases import unit_in_records
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks

ROADS: dict[str, tuple[PrivateSteps, int, float]] = {
    # what -> steps, records of a unit, the share that the fast audit reaches
    "a graph in one record": (PrivateSteps(1.4, rate=0.5, steps=4, unit="graph"), 1, 0.3),
    "a graph in every step": (PrivateSteps(1.08, rate=1.0, steps=1, unit="graph"), 1, 0.6),
    "a node in five records": (PrivateSteps(7.5, rate=0.5, steps=2), 5, 0.5),
    "a node in seven records, one step": (PrivateSteps(7.5, rate=0.5, steps=1), 7, 0.6),
}


@pytest.mark.parametrize("name", ROADS)
def test_the_claim_holds_and_is_nearly_reached(name):
    how, occurrences, share = ROADS[name]
    found = audit_steps(how, occurrences, trials=5_000)
    assert 3.8 < found.claim < 4.2
    assert not found.broken
    assert found.reached >= share
    assert found.lower.ceiling > 2 * found.claim


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ROADS)
def test_a_hundred_thousand_steps(name):
    how, occurrences, _ = ROADS[name]
    found = audit_steps(how, occurrences, trials=100_000)
    assert not found.broken
    assert found.reached >= 0.8


def test_blocks_are_steps_of_their_own():
    # one block a call is what training does; many at once show the same law
    how = PrivateSteps(2.0, rate=0.5)
    one = scores(how, unit_in_records(how, 3, blocks=1), True, 1_500)
    many = scores(how, unit_in_records(how, 3, blocks=500), True, 3_000)
    # 1.5 records at a half, noise of 2: 4 + 0.75; five standard errors
    for found in (one, many):
        assert found.mean() == pytest.approx(1.5, abs=5 * math.sqrt(4.75 / len(found)))
        assert found.var() == pytest.approx(4.75, rel=5 * math.sqrt(2 / len(found)))


def test_more_records_than_are_charged_are_caught():
    found = audit_steps(PrivateSteps(3.0, rate=0.5, steps=2), 1, trials=1_500, touched=5)
    assert found.broken


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_links_hold_and_are_nearly_reached(epsilon):
    found = audit_links(RandomisedLinks(epsilon), 20_000)
    assert 0.9 * epsilon < found.epsilon <= epsilon < found.ceiling


def test_records_pull_in_blocks_of_their_own():
    how = PrivateSteps(1.0, clip=2.0, rate=0.5)
    records = unit_in_records(how, occurrences=2, blocks=3, tensors=2)
    found = records.gradients(True)(torch.arange(records.number))
    assert records.number == 6 and list(found) == ["layer0", "layer1"]
    wanted = torch.block_diag(*[torch.full((2, 1), 20 / math.sqrt(2))] * 3)
    assert torch.allclose(found["layer0"], wanted) and torch.equal(found["layer0"], found["layer1"])
    assert torch.equal(records.gradients(False)(torch.arange(6))["layer0"], -found["layer0"])
