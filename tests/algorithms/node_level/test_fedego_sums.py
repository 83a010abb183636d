"""FedEgo under a budget: a node that several owners hold is counted by one of them, and it is said."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import Form
from secure_fedgraph.algorithms.fedego.algorithm import FedEgoSums
from secure_fedgraph.algorithms.fedridge.algorithm import NOISE
from secure_fedgraph.audits.conformance.rows import conformance_rows
from secure_fedgraph.core.accounting.events import OneHolderRelease
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import ridge
from secure_fedgraph.privacy.input_dp import randomizer
from secure_fedgraph.privacy.input_dp.labels import DividedLabels
from secure_fedgraph.protocol.transcript import everything

SPLIT = {"local_tests": 20}
LARGE = {"nodes": 300, "features": 150}


@pytest.fixture
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, partition="label_skew", split=SPLIT, **LARGE)


def budgeted(
    federation: sfg.Federation, algorithm: sfg.Algorithm | None = None, epsilon: float = 8.0
) -> sfg.Run:
    with pytest.warns(FormWarning, match="fedego-sums takes the form"):
        return sfg.train(
            algorithm or sfg.FedEgo(),
            federation,
            "distributed_dp",
            budget=sfg.Budget(epsilon, 1e-5, "node"),
            rounds=2,
        )


def test_each_node_has_one_home_which_trains_on_it_where_anybody_does(federation) -> None:
    owners = federation.owners.values()
    held = torch.cat([one.node_id for one in owners])
    at_home = torch.cat([one.node_id[one.home] for one in owners])
    trained = torch.cat([one.node_id[one.train_mask] for one in owners])
    trained_at_home = torch.cat([one.node_id[one.home & one.train_mask] for one in owners])
    assert len(held) > len(held.unique())
    assert at_home.sort().values.tolist() == held.unique().tolist()
    assert trained_at_home.sort().values.tolist() == trained.unique().tolist()


def test_owners_that_know_no_homes_add_the_noise_of_all_holders(federation) -> None:
    known = budgeted(federation)
    for one in federation.owners.values():
        del one.home
    unknown = budgeted(federation)
    assert [run.privacy()["node"]["holders"] for run in (known, unknown)] == [3, 3]
    assert all(7.9 < float(run.privacy()["node"]["epsilon"]) <= 8 for run in (known, unknown))
    noises = [float(run.algorithm.released(run.state)[NOISE]) for run in (known, unknown)]
    assert noises[1] / noises[0] == pytest.approx(3, rel=0.01)


def test_a_channel_with_links_has_no_homes() -> None:
    with pytest.raises(BadInput, match="one_holder"):
        Channel("sums", Reveal.SUM, Unit.NODE, one_holder=True)


def test_what_a_run_charges_is_read_back_from_its_ledger(federation, tmp_path) -> None:
    algorithm = FedEgoSums(second_moments="own", target_norm=1.0)
    policy = sfg.policies.distributed_dp(norm=1.0, multiplier=5.0)
    sfg.train(algorithm, federation, policy, rounds=1, ledger=tmp_path / "ledger.jsonl")
    costs = [cost for name in federation.names for cost in Ledger(tmp_path / "ledger.jsonl").costs_of(name)]
    assert costs and all(cost.one_holder for cost in costs)
    alone = {unit: costs[0].at(unit, "server", 1) for unit in ("node", "label")}
    assert all(costs[0].at(unit, "server", 3) == events for unit, events in alone.items())
    assert costs[0].at("graph", "server", 3) is None


def test_the_family_takes_the_form_and_sends_mashes_once(federation) -> None:
    run = budgeted(federation, sfg.FedEgo(), epsilon=64.0)
    assert run.algorithm.name == "fedego-sums" and run.form["mash"] == "class"
    assert float(run.privacy()["edge"]["epsilon"]) == 0
    assert run.accuracy["global"] > 0.5
    assert run.accuracy["personal"] >= run.accuracy["own"] - 0.05


@pytest.mark.parametrize("true", [0, 1, 2])
def test_a_label_is_told_by_its_home_alone_whatever_the_coins(monkeypatch, true: int) -> None:
    """For each pair of coins: an owner that is not the home says the same whatever its label is."""
    graph = Data(y=torch.tensor([0, true, -1]), home=torch.tensor([True, False, False]))
    said = []
    for coin in range(3):
        monkeypatch.setattr(
            randomizer, "coins", lambda count, c=coin: torch.full((count,), c).numpy().astype("u8")
        )
        said.append(DividedLabels(50.0).randomize(graph, 3).tolist())
    assert [one[1] for one in said] == [0, 1, 2]
    assert all(one[2] == -1 for one in said)


def test_labels_of_homes_are_charged_once_and_refused_without_any() -> None:
    one = DividedLabels(2.0)
    assert one.costs()["label"] == (OneHolderRelease(2.0),)
    with pytest.raises(BadInput, match="home"):
        one.randomize(Data(y=torch.tensor([0, 1])), 2)


def test_labels_that_a_nodes_home_alone_tells_are_no_broken_ledger() -> None:
    asked = {"algorithm": "fedego", "data": "synthetic-citation", "dataset": LARGE, "split": SPLIT}
    asked |= {"partition": "label_skew", "clients": 3, "policy": "masked", "epsilon": 4, "unit": "label"}
    run = execute(Experiment(**asked), None, keep=everything)
    assert any(isinstance(one, DividedLabels) for one in run.policy.policy.randomizers)
    assert [row["findings"] for row in conformance_rows(run) if row["outcome"] == "failed"] == []


def test_the_referees_copies_share_what_was_solved_and_doubles_are_read_as_floats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solved: list[int] = []
    own_weights = ridge.own_weights
    monkeypatch.setattr(ridge, "own_weights", lambda *asked: (solved.append(1), own_weights(*asked))[1])
    algorithm, graph = sfg.algorithms.FedRidge(second_moments="own"), Data(x=torch.rand(20, 6))
    schema, one = Schema(6, 3), torch.ones((), dtype=torch.float64)
    sums = {"classes": torch.rand(6, 3, dtype=torch.float64), "owners": 2 * one, "noise": one}
    first = copy.deepcopy(algorithm).solved(sums, graph, schema)
    assert torch.equal(copy.deepcopy(algorithm).solved(sums, graph, schema), first) and len(solved) == 1
    for changed in ({"noise": 2 * one}, {"owners": one}, {"classes": sums["classes"] + 1}):
        algorithm.solved({**sums, **changed}, graph, schema)
    algorithm.solved(sums, Data(x=torch.rand(20, 6)), schema)
    assert len(solved) == 5
    algorithm.in_form(Form({"target_norm": 2.0}, "")).solved(sums, graph, schema)
    algorithm.solved(sums, graph, Schema(6, 3, task=Task.LABELS))
    assert len(solved) == 7
    hostile = {"weights": torch.rand(6, 3, dtype=torch.float64)}
    assert algorithm.solved(hostile, graph, schema).dtype == torch.float32
