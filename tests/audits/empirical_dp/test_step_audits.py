"""Noisy steps and drawn links against worst-case neighbours: never above the claim, and near it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from secure_fedgraph.audits.empirical_dp.mechanisms import audit
from secure_fedgraph.audits.empirical_dp.step_audits import _ThresholdErrors, audit_links, audit_steps, scores
from secure_fedgraph.audits.empirical_dp.worst_cases import held_by, unit_in_records
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.spending.ledger import Cost, composed
from secure_fedgraph.policies import central_dp, local_dp
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks

DELTA, NORM = 1e-5, 1.5
NAMES = tuple(f"owner-{i}" for i in range(4))
UPDATE = Channel("update", Reveal.SUM)

ROADS: dict[str, tuple[PrivateSteps, int, float]] = {
    # what -> steps, records of a unit, the share that the fast audit reaches
    "a graph in one record": (PrivateSteps(1.4, rate=0.5, steps=4, unit="graph"), 1, 0.15),
    "a graph in every step": (PrivateSteps(1.08, rate=1.0, steps=1, unit="graph"), 1, 0.6),
    "a node in five records": (PrivateSteps(7.5, rate=0.5, steps=2), 5, 0.5),
    "a node in seven records, one step": (PrivateSteps(7.5, rate=0.5, steps=1), 7, 0.6),
}


@pytest.mark.parametrize("name", ROADS)
def test_the_claim_holds_and_is_nearly_reached(name):
    how, occurrences, share = ROADS[name]
    found = audit_steps(how, occurrences, trials=5_000)
    assert 3.8 < found.claim < 4.2
    assert not found.broken, found.sentence()
    assert found.reached >= share, found.sentence()
    assert found.lower.ceiling > 2 * found.claim


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ROADS)
def test_a_hundred_thousand_steps(name):
    how, occurrences, _ = ROADS[name]
    found = audit_steps(how, occurrences, trials=100_000)
    assert not found.broken, found.sentence()
    assert found.reached >= 0.8, found.sentence()


def test_blocks_are_steps_of_their_own():
    # one block a call is what training does; many at once show the same law
    how = PrivateSteps(2.0, rate=0.5)
    one = scores(how, unit_in_records(how, 3, blocks=1), True, 1_500)
    many = scores(how, unit_in_records(how, 3, blocks=500), True, 3_000)
    # 1.5 records at a half, noise of 2: 4 + 0.75; five standard errors
    for found in (one, many):
        assert found.mean() == pytest.approx(1.5, abs=5 * math.sqrt(4.75 / len(found)))
        assert found.var() == pytest.approx(4.75, rel=5 * math.sqrt(2 / len(found)))


@pytest.mark.parametrize(("vanishing", "many"), [(True, 1), (False, 3)])
def test_the_law_is_that_of_the_scores(vanishing, many):
    how = PrivateSteps(1.5, rate=0.4, unit="graph" if vanishing else "node")
    records, law = unit_in_records(how, many), _ThresholdErrors(0.4, many, vanishing)
    present, absent = law.above(0.7, 1.5)
    for wanted, world in ((present, True), (absent, False)):
        found = scores(how, records, world, 4_000)
        assert np.mean(found > 0.7) == pytest.approx(float(wanted[0]), abs=5 * math.sqrt(0.25 / len(found)))


def test_the_law_knows_its_own_noise():
    law = _ThresholdErrors(0.3, 4, False)
    p, q = (float(v[0]) for v in law.above(0.5, 2.0))
    assert law.allowed(q, 1 - p) == pytest.approx(2.0, rel=1e-4)
    assert law.allowed(q, 1.0) == law.allowed(1.0, 0.5) == 1e3


def test_more_records_than_are_charged_are_caught():
    found = audit_steps(PrivateSteps(3.0, rate=0.5, steps=2), 1, trials=1_500, touched=5)
    assert found.broken, found.sentence()
    assert "BROKEN" in found.sentence()


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_links_hold_and_are_nearly_reached(epsilon):
    found = audit_links(RandomisedLinks(epsilon), 20_000)
    assert 0.9 * epsilon < found.epsilon <= epsilon < found.ceiling


@pytest.mark.parametrize(("unit", "holders"), [("node", 1), ("graph", 2)])
def test_a_smaller_unit_in_several_uploads(unit, holders):
    """The sum by a trusted server, whose noise a client's multiplier is 2 h times too large for."""
    bound = central_dp(NORM, 1.0).bind((UPDATE,), NAMES)["update"]
    cost = Cost("client", "zero-out", frozenset(bound.releases(2).items()), frozenset())
    claim = composed({cost: 1}, unit, "outsider", holders, DELTA).epsilon
    found = audit(bound, held_by(bound, NORM, holders), "outsider", trials=700, claim=claim)
    assert not found.broken, found.sentence()
    assert found.reached > 0.4, found.sentence()


def test_neighbours_that_are_none():
    bound = local_dp(NORM, 1.0).bind((UPDATE,), NAMES)["update"]
    with pytest.raises(BadInput, match="5 holders among 4 clients"):
        held_by(bound, NORM, 5)
    rows = Channel("rows", Reveal.EACH, unit=Unit.NODE)
    with pytest.raises(BadInput, match="has no client units"):
        held_by(local_dp(NORM, 1.0).bind((rows,), NAMES)["rows"], NORM, 1)


def test_records_pull_in_blocks_of_their_own():
    how = PrivateSteps(1.0, clip=2.0, rate=0.5)
    records = unit_in_records(how, occurrences=2, blocks=3, others=1, tensors=2)
    found = records.gradients(True)(torch.arange(records.number))
    assert records.number == 9 and list(found) == ["layer0", "layer1"]
    far = 20 / math.sqrt(2)
    row = [far, far, 0.0]
    wanted = torch.block_diag(*[torch.tensor(row)[:, None]] * 3)
    assert torch.allclose(found["layer0"], wanted) and torch.equal(found["layer0"], found["layer1"])
    assert torch.equal(records.gradients(False)(torch.arange(9))["layer0"], -found["layer0"])
