"""FedEgo's bounded mashes against worst-case nodes: the claim holds, is tight, and its mutants are caught."""

from __future__ import annotations

import math

import dp_accounting as dp
import pytest
from parties import NAMES

from secure_fedgraph.audits.empirical_dp.mechanisms import audit
from secure_fedgraph.audits.empirical_dp.worst_cases import grown_trees
from secure_fedgraph.errors import BadInput
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp
from secure_fedgraph.privacy import binding, pooling_trees
from secure_fedgraph.privacy.bound import Bound
from secure_fedgraph.privacy.spending.ledger import Charge, spent
from secure_fedgraph.protocol import Channel, Reveal, Unit, UnitContributionTrees

DELTA, EPSILON = 1e-5, 4.0
MULTIPLIER = float(dp.get_sigma_gaussian(EPSILON, DELTA))
MOST = (1, 2, 2)
TRIALS = 90
TOUCHES = UnitContributionTrees(0.7, fanout=(2, 2), most=MOST, batches=TRIALS * sum(MOST), trees=2)
MASHES = Channel("egos_across", Reveal.SUM, Unit.NODE, unit_contribution=TOUCHES)
ROADS = {
    "noised by the client": (lambda: local(), "server", ()),
    "noised by the client, replaced": (lambda: local("replace"), "server", ()),
    "noised by the server": (lambda: fitted(central_dp(1.0, MULTIPLIER)), "peers", NAMES[1:]),
}


def fitted(policy, clients=NAMES) -> Bound:
    return policy.bind((MASHES,), clients)["egos_across"]


def local(relation: str = "zero-out") -> Bound:
    return fitted(local_dp(1.0, MULTIPLIER, relation))


def test_a_node_stands_for_all_below_its_places():
    # as a centre 7 cells; twice as a neighbour, 3 each; twice as a neighbour's
    assert TOUCHES.rows == 7 + 2 * 3 + 2
    assert local().sensitivity.l2 == pytest.approx(math.sqrt(15) * 0.7)
    assert local().unit is Unit.NODE


@pytest.mark.parametrize("name", ROADS)
def test_the_claim_holds_and_is_tight(name):
    make, reader, colluders = ROADS[name]
    bound = make()
    found = audit(bound, grown_trees(bound), reader, trials=30_000, colluders=colluders)
    assert found.claim == pytest.approx(EPSILON, abs=1e-3)
    assert not found.broken, found.sentence()
    assert found.reached >= 0.75, found.sentence()
    assert found.lower.ceiling > 5 * EPSILON


def test_shares_of_the_fewest_honest_survivors_are_enough():
    # no limit is set: a cell holds one node a tree
    bound = fitted(
        distributed_dp(1.0, MULTIPLIER, quorum=3, colluders=1 / 6), tuple(f"owner-{i}" for i in range(6))
    )
    found = audit(bound, grown_trees(bound, answering=3), "server", trials=20_000, colluders=("owner-2",))
    assert EPSILON < found.claim < 1.1 * EPSILON
    assert not found.broken, found.sentence()
    assert found.reached >= 0.7, found.sentence()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ROADS)
def test_a_hundred_thousand_calls(name):
    make, reader, colluders = ROADS[name]
    bound = make()
    found = audit(bound, grown_trees(bound), reader, trials=100_000, colluders=colluders)
    assert not found.broken, found.sentence()
    assert found.reached >= 0.9, found.sentence()


def _one_cell(patch):
    patch.setattr(binding, "l2_sensitivity", lambda contribution, relation: contribution.norm)


def _itself_only(patch):
    # its places are counted, and not what is reached through them
    patch.setattr(
        binding,
        "l2_sensitivity",
        lambda contribution, relation: contribution.norm * math.sqrt(sum(contribution.most)),
    )


def _one_role(patch):
    # as a centre only: its occurrences in others' ego-graphs are ignored
    patch.setattr(
        binding,
        "l2_sensitivity",
        lambda contribution, relation: contribution.norm * math.sqrt(contribution.below[0]),
    )


def _not_clipped(patch):
    patch.setattr(pooling_trees, "clipped", lambda matrix, norm: matrix)


def _any_table(patch):
    patch.setattr(pooling_trees, "check_table", lambda places, contribution: None)


MUTANTS = {
    # what is wrong -> how, how many times the places
    "a node counts as one cell": (_one_cell, 1),
    "what is reached through a node is not counted": (_itself_only, 1),
    "occurrences in others' ego-graphs are ignored": (_one_role, 1),
    "rows are not clipped": (_not_clipped, 1),
    "the caps are not enforced": (_any_table, 3),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    wrong, times = MUTANTS[name]
    wrong(monkeypatch)
    bound = local()
    found = audit(bound, grown_trees(bound, times=times), "server", trials=60_000 if times == 1 else 20_000)
    assert found.claim == pytest.approx(EPSILON, abs=1e-3)
    assert found.broken, found.sentence()


def test_the_door_refuses_more_places_than_were_declared():
    bound = local()
    with pytest.raises(BadInput, match="more than 1 times at level 0"):
        audit(bound, grown_trees(bound, times=3), "server", trials=200)


def test_several_holders_of_a_node_cost_as_many_uploads():
    def at(holders: int) -> float:
        charge = Charge("a", "run", 1, 1, "egos", "node", "zero-out", local().releases(10))
        return spent([charge], DELTA, holders)["node"]["server"].epsilon

    # one node in five clients' mashes moves their sum five times as far
    expected = spent(
        [
            Charge(
                "a", "run", 1, 1, "egos", "node", "zero-out", fitted(local_dp(1, MULTIPLIER / 5)).releases(10)
            )
        ],
        DELTA,
    )["node"]["server"].epsilon
    assert at(1) == pytest.approx(EPSILON, abs=1e-3)
    assert at(5) == pytest.approx(expected, rel=1e-4)
    assert at(5) > 4 * EPSILON
