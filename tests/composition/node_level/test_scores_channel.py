"""The channel ``scores`` in whole runs: declared, bound, charged, noised for one item, in range."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import small
import torch
from scipy.stats import chi2
from small_graphs import triangles
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import ITEMS
from secure_fedgraph.algorithm import base as algorithms
from secure_fedgraph.core.channel import UnitContributionSampled
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.wire import decode
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.metrics.counting import FEW, MANY, Counting
from secure_fedgraph.metrics.figures import RANGES
from secure_fedgraph.policies import distributed_dp, masked, plaintext
from secure_fedgraph.privacy.broadcasts import BroadcastLimits
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.protocol.dropouts import STEPS, Dropouts
from secure_fedgraph.protocol.transcript import everything
from secure_fedgraph.round import Round

CLIENTS, DELTA = 5, 1e-5
SCORES = "scores"


@cache
def federation(kind: str = "node") -> sfg.Federation:
    if kind == "graph":
        return sfg.federate(triangles(), clients=CLIENTS, partition="random", seed=0)
    return sfg.federate("synthetic-citation", clients=CLIENTS, nodes=200, features=8, seed=0)


def train(
    name: str = "fedridge", policy: Any = "distributed_dp", on: sfg.Federation | None = None, **more: Any
) -> sfg.Run:
    given = on or federation()
    settings = {"rounds": 1, "evaluation": "in_band", "keep": everything, "seed": 0, **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FormWarning)
        return sfg.train(small.algorithm(name), given, policy, **settings)


def by_hand() -> Any:
    """Noise of twice what one item moves, in shares, wherever there is any."""
    return distributed_dp(9.0, 2.0, quorum=3)


def stepped() -> Any:
    """Noisy steps under masks, and noise on what is counted."""
    return replace(masked(), steps=PrivateSteps(2.0, rate=0.5, steps=1), scores_noise=3.0)


def opened(run: sfg.Run) -> list[np.ndarray]:
    """The cells of each exchange, in items."""
    notes = [note for note in run.transcript.opened if note.channel == SCORES]
    bodies = [decode(run.transcript.body(note.number)) for note in notes]
    assert all(set(body) == {"test"} for body in bodies)
    return [np.asarray(body["test"], dtype=np.float64).reshape(-1) * ITEMS for body in bodies]


def exact(run: sfg.Run, clients: tuple[str, ...], links: bool = False) -> np.ndarray:
    """The same cells without noise, counted from the owners' data."""
    schema, released = run.federation.schema, run.algorithm.released(run.state)
    cells, total = Counting(schema, FEW), np.zeros(Counting(schema, FEW).size)
    for name in clients:
        graph = run.federation.owners[name].clone()
        if not links:
            graph.edge_index = graph.edge_index[:, :0]
        outputs = run.algorithm.predict(released, graph, schema).detach()
        counted = graph.test_mask | graph.val_mask
        total += cells.total(outputs[counted], graph.y[counted]).numpy()
    return total


# --- declared, bound, charged


@pytest.mark.parametrize("kind", ["node", "graph"])
def test_it_is_declared_bound_and_charged_for_one_item(kind):
    name = "fedridge" if kind == "node" else "fedridge-graphs"
    run = train(name, on=federation(kind), budget=Budget(4.0, DELTA, kind))
    bound = run.policy[SCORES]
    contribution = bound.channel.unit_contribution
    assert isinstance(contribution, UnitContributionSampled)
    assert contribution.norm * ITEMS == pytest.approx(Counting(run.federation.schema, FEW).norm)
    assert (contribution.rows, contribution.rate) == (1, 1.0)
    assert bound.channel.unit is Unit(kind)
    assert bound.channel.links == (kind == "graph")
    assert any(stage.noise() for stage in bound.stages)
    charged = [one for one in run.charges if one.channel == SCORES]
    assert sorted(one.client for one in charged) == sorted(run.federation.names)
    assert {one.unit for one in charged} == {kind}
    assert 0 < run.privacy(kind, DELTA)["epsilon"] <= 4.0
    assert "metrics" not in run.policy.bounds
    assert run.transcript.view("server").uploads(SCORES) == []
    sent = [one for one in run.transcript.sent if one.channel == SCORES and one.recipient == "server"]
    assert sum(one.bytes for one in sent) >= CLIENTS * Counting(run.federation.schema, FEW).size


def test_the_part_of_scores_in_a_budget_is_small():
    alone = train(evaluation="at_home", budget=Budget(4.0, DELTA, "node"))
    scored = train(budget=Budget(4.0, DELTA, "node"))
    noise = [run.policy["moments"].deviation(CLIENTS) for run in (alone, scored)]
    assert 1 < noise[1] / noise[0] < 1.25


def test_a_budget_for_clients_opens_single_accuracies_alone():
    run = train("fedavg", budget=Budget(8.0, DELTA, "client"))
    assert [name for name in run.policy.bounds if name != "update"] == ["metrics"]
    assert {one.unit for one in run.charges} == {"client"}
    assert run.privacy("client", DELTA)["epsilon"] <= 8.0


@pytest.mark.parametrize("policy", [plaintext, masked])
def test_without_noise_items_are_counted_exactly_and_in_more_bins(policy):
    run = train("fedavg", policy())
    (note,) = [one for one in run.transcript.opened if one.channel == SCORES]
    body = decode(run.transcript.body(note.number))
    schema, released = run.federation.schema, run.algorithm.released(run.state)
    cells = Counting(schema, MANY)
    for part, mask in (("test", "test_mask"), ("validation", "val_mask")):
        total = np.zeros(cells.size)
        for graph in run.federation.owners.values():
            outputs = run.algorithm.predict(released, graph, schema).detach()
            total += cells.total(outputs[graph[mask]], graph.y[graph[mask]]).numpy()
        assert np.asarray(body[part]).reshape(-1) * ITEMS == pytest.approx(total, abs=0.05)


@pytest.mark.parametrize(("every", "times"), [(1, 1), (2, 2), (3, 2)])
def test_it_is_asked_once_unless_more_scores_are_asked_for(every, times):
    more = {} if every == 1 else {"evaluate_every": every}
    run = train("fedsgd", rounds=4, budget=Budget(4.0, DELTA, "node"), **more)
    assert sum(one.channel == SCORES for one in run.charges) == times * CLIENTS
    assert len(opened(run)) == times
    assert sum("metrics" in row for row in run.history) == times
    assert run.privacy("node", DELTA)["epsilon"] <= 4.0


# --- the noise and what it covers


@pytest.mark.parametrize(
    ("name", "policy", "kind"),
    [("fedridge", by_hand, "node"), ("fedavg", stepped, "node"), ("fedridge-graphs", by_hand, "graph")],
)
def test_the_noise_is_as_wide_as_planned(name, policy, kind):
    """Opened cells less exact ones, over several runs."""
    found, planned = [], 0.0
    for _ in range(3):
        run = train(name, policy(), on=federation(kind))
        (cells,) = opened(run)
        found.append(cells - exact(run, run.federation.names, links=kind == "graph"))
        # shares that the sum does not need are taken out of it, and the others stay
        planned = run.policy[SCORES].deviation(CLIENTS) * ITEMS
    noise = np.concatenate(found)
    low, high = np.sqrt(chi2.ppf([1e-6, 1 - 1e-6], noise.size) / noise.size)
    assert low < noise.std() / planned < high
    assert abs(noise.mean()) < 6 * planned / np.sqrt(noise.size)
    for one, other in itertools.combinations(found, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / np.sqrt(one.size)
    assert planned >= 2 * Counting(run.federation.schema, FEW).norm  # for one item, not for a client


@pytest.mark.parametrize(
    ("name", "policy", "step"),
    [*(("fedridge", by_hand, step) for step in STEPS), ("fedavg", stepped, "answer")],
)
def test_sums_survive_drop_outs(name, policy, step):
    run = train(name, policy(), dropouts=Dropouts(at={(1, "owner-1"): step}))
    (seen,) = [note for note in run.transcript.opened if note.channel == SCORES]
    assert set(run.federation.names) - set(seen.contributors) <= {"owner-1"}
    (cells,) = opened(run)
    noise = cells - exact(run, seen.contributors)
    planned = run.policy[SCORES].deviation(len(seen.contributors)) * ITEMS
    assert np.square(noise / planned).sum() < chi2.ppf(1 - 1e-6, noise.size)
    assert 0 <= run.history[-1]["accuracy"]["global"] <= 1


@pytest.mark.parametrize(
    ("more", "linked"),
    [
        ({"budget": Budget(4.0, DELTA, "node")}, False),
        ({"policy": masked()}, True),
    ],
)
def test_scores_of_nodes_read_no_link_under_a_nodes_budget(more, linked, monkeypatch):
    read = set()
    predict = sfg.algorithms.FedRidge.predict

    def watched(self, params, graph, schema):
        read.add(bool(graph.edge_index.numel()))
        return predict(self, params, graph, schema)

    monkeypatch.setattr(sfg.algorithms.FedRidge, "predict", watched)
    train(**more)
    assert read == {linked}


def test_of_very_many_nodes_no_other_enters_in_the_place_of_one(monkeypatch):
    """Which nodes are looked at does not depend on which of them are test nodes."""
    monkeypatch.setattr(algorithms, "MOST_ITEMS", 16)
    asked: list[int] = []
    order = sfg.client.Client.secret_order

    def noted(self, size):
        asked.append(size)
        return order(self, size)

    monkeypatch.setattr(sfg.client.Client, "secret_order", noted)
    run = train(policy=by_hand())
    assert asked == [len(graph.y) for graph in run.federation.owners.values() if len(graph.y) > 16]


@pytest.mark.parametrize("task", [Task.CLASSES, Task.LABELS, Task.NUMBER])
@pytest.mark.parametrize("form", ["own", "all"])
def test_a_node_moves_no_other_nodes_score_even_under_a_model_that_the_server_made_up(task, form):
    schema = Schema(6, 1 if task == Task.NUMBER else 3, task=task, low=0.0, high=1.0)
    ridge = sfg.algorithms.FedRidge(second_moments=form)
    draw = torch.Generator().manual_seed(0)
    told = {key: 100 * torch.rand(one.shape, generator=draw) for key, one in ridge.init(schema, 0).items()}
    model = ridge.by_item(ridge.released(told), schema)
    before = torch.randn(20, 6, generator=draw)
    after = before.index_fill(0, torch.tensor([0]), 5.0)
    no_links = torch.zeros(2, 0, dtype=torch.long)
    one, other = (ridge.predict(model, Data(x=x, edge_index=no_links), schema) for x in (before, after))
    assert torch.equal(one[1:], other[1:]) and not torch.equal(one[0], other[0])


def over_nodes(self: Any, params: Any, graph: Data, schema: Schema) -> torch.Tensor:
    return graph.x[:, : schema.classes] - graph.x[:, : schema.classes].mean(dim=0)


@pytest.mark.parametrize("model", ["normalises", "rounds"])
def test_a_training_node_moves_no_score_of_others_under_weights_that_a_server_made_up(model, monkeypatch):
    schema, draw = Schema(200, 2), torch.Generator().manual_seed(0)
    sage = sfg.FedSage(fanout=(0, 0))
    weights = sage.init(schema, 0)
    if model == "normalises":
        monkeypatch.setattr(sfg.FedSage, "predict", over_nodes)
    else:  # sums that cancel but for their rounding, whose order follows how many zeros a graph has
        half = 1e7 * torch.randn(100, 32, generator=draw)
        weights["layers.0.own.weight"] = torch.cat([half, -half]).T.contiguous()
    words = torch.rand(300, 100, generator=draw).argsort(dim=1)[:, :3]
    x = torch.zeros(300, 100).scatter_(1, words, 1.0).repeat(1, 2)
    nodes = [Data(x=x.index_fill(0, torch.tensor([0]), one), y=torch.zeros(300)) for one in (1.0, 0.0)]
    items = torch.arange(1, 300)
    one, other = (sage._each_alone(weights, graph, schema, items) for graph in nodes)
    assert torch.equal(one, other)
    together = [
        sage.predict(weights, graph.update({"edge_index": torch.zeros(2, 0).long()}), schema)
        for graph in nodes
    ]
    assert not torch.equal(together[0][1:], together[1][1:])  # where a question is about all of them


@pytest.mark.parametrize("unit", ["node", "client"])
def test_an_algorithm_from_outside_is_scored_under_a_budget_too(unit):
    class Own(sfg.FedAvg):
        name = "own"

    budget = Budget(4.0, DELTA, unit)
    run = sfg.train(
        Own(hidden=(4, 4)), federation(), "distributed_dp", rounds=1, evaluation="in_band", budget=budget
    )
    assert (SCORES in run.policy.bounds) == (unit == "node")
    assert run.privacy(unit, DELTA)["epsilon"] <= 4.0


def test_planted_models_are_refused_on_it_too(monkeypatch):
    """An honest one passes: it is held to the limits as the model of its round."""
    policy = replace(plaintext(), broadcasts=BroadcastLimits(change=1.7, units=0.05))
    train("fedavg", policy, rounds=2)
    asked = Round.reduce

    def planting(self: Any, channel: Any, given: Any = None, **more: Any) -> Any:
        if channel.name == SCORES:
            given = {name: torch.zeros_like(value) for name, value in given.items()}
        return asked(self, channel, given=given, **more)

    monkeypatch.setattr(Round, "reduce", planting)
    with pytest.raises(HostileMessage, match=SCORES):
        train("fedavg", policy)


# --- what is shown


def check_figures(row: dict[str, Any]) -> None:
    accuracy = {k: v for k, v in row["accuracy"].items() if isinstance(v, float)}
    assert all(0 <= value <= 1 for value in accuracy.values()), accuracy
    for name, one in row.get("metrics", {}).items():
        low, high = RANGES.get(name, (0.0, 1.0))
        assert low <= one["low"] <= one["global"] <= one["high"] <= high, (name, one)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("fedridge", "node"),
        ("fedsgd", "node"),
        ("fedavg", "node"),
        ("fedavg", "client"),
        ("fedridge-graphs", "graph"),
    ],
)
def test_no_figure_is_outside_of_its_range_at_a_tiny_epsilon(name, unit):
    given = federation("graph" if unit == "graph" else "node")
    for seed in range(1 if name == "fedsgd" else 3):
        run = train(name, on=given, budget=Budget(0.05, DELTA, unit), seed=seed)
        for row in run.history:
            check_figures(row)


@pytest.mark.parametrize("schema", [Schema(3, 2), Schema(3, 5), Schema(3, 4, task="labels")])
def test_the_declared_norm_fits_what_carriers_take(schema):
    """So many items in one cell are within what a sum may hold."""
    channel = sfg.FedAvg().scores_channel(schema, by_item=True)
    assert channel.unit_contribution.largest >= algorithms.MOST_ITEMS / ITEMS
