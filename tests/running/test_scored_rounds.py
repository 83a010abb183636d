"""Rounds are scored when asked, and on as many test nodes as asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.evaluation import Evaluator
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute, lead, make_federation, mean_result, run_result
from secure_fedgraph.graph.partition.sampled import interval, sampled
from secure_fedgraph.models.user_models import scores_of

DATA = sfg.federate("synthetic-citation", clients=3, seed=0, partition="random", nodes=400, features=24)
SMALL: dict[str, Any] = {"algorithm": "fedsage", "data": "synthetic-citation", "partition": "random"}


@pytest.fixture
def scorings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    rounds: list[int] = []
    evaluate = Evaluator.evaluate

    def counted(self: Evaluator, algorithm: Any, state: Any, round: Any, *more: Any) -> dict[str, Any]:
        rounds.append(round.number)
        return evaluate(self, algorithm, state, round, *more)

    monkeypatch.setattr(Evaluator, "evaluate", counted)
    return rounds


@pytest.mark.parametrize(("every", "scored"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (9, [5])])
def test_the_last_round_is_scored_and_of_the_others_every_so_many(
    every: int, scored: list[int], scorings: list[int]
) -> None:
    run = sfg.train(sfg.FedSage(), DATA, "plaintext", rounds=5, evaluate_every=every)
    assert scorings == scored
    assert [row["round"] for row in run.history if row["accuracy"]] == scored
    assert len(run.history) == 5


def test_fewer_scores_change_no_weight() -> None:
    weights = [
        sfg.train(sfg.FedSage(), DATA, "plaintext", rounds=3, evaluate_every=every).state for every in (1, 3)
    ]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_scores_in_band_are_sent_and_charged_in_scored_rounds_alone() -> None:
    run = sfg.train(sfg.FedSage(), DATA, "masked", rounds=5, evaluation="in_band", evaluate_every=2)
    asked = {one.round for one in run.transcript.sent if one.channel == "metrics"}
    assert asked == {2, 4, 5}
    assert len({charge.round for charge in run.charges if charge.channel == "metrics"}) == 3


def test_a_budget_is_planned_for_the_scores_that_are_sent() -> None:
    """Noise is planned for all that is sent: fewer scores leave more of the budget to the update."""
    spent = {}
    for every in (1, 4):
        run = sfg.train(
            sfg.FedSage(),
            DATA,
            "distributed_dp",
            rounds=4,
            evaluation="in_band",
            evaluate_every=every,
            budget=sfg.Budget(8.0, unit="client"),
        )
        spent[every] = run.policy["update"].deviation(3)
        assert float(run.privacy("client")["epsilon"]) <= 8.0
    assert spent[4] < spent[1]


@pytest.mark.parametrize(
    ("network", "fanout"),
    [("sage", (5, 5)), ("sage", (0, 0)), ("sage", (2,)), ("sage", (3, 3, 3)), ("ego", (5, 5))],
)
def test_sampled_nodes_get_the_scores_of_the_whole_graph(network: str, fanout: tuple[int, ...]) -> None:
    """Features are real numbers here, which tell all nodes apart."""
    data = sfg.federate("synthetic-citation", clients=2, partition="random", nodes=300, values="dense")
    algorithm = sfg.FedSage(fanout=fanout, hidden=(16,) * len(fanout), network=network)
    whole, reach = data.referee.test_set, algorithm.reach(data.schema)
    assert reach == len(fanout)
    some, params = sampled(whole, 6, reach, seed=1), algorithm.init(data.schema, 0)
    full, part = (algorithm.predict(params, one.inputs, data.schema) for one in (whole, some))
    assert len(some.labels) < 300
    for owner, nodes in some.tests.items():
        same = (whole.inputs.x.unsqueeze(1) == some.inputs.x[nodes]).all(dim=2)
        there = same.int().argmax(dim=0)
        assert bool(same.any(dim=0).all()) and set(there.tolist()) <= set(whole.tests[owner].tolist())
        assert torch.allclose(part[nodes], full[there], atol=1e-6)
        assert torch.equal(some.labels[nodes], whole.labels[there])


def test_every_owner_keeps_its_share_of_a_sample() -> None:
    whole = DATA.referee.test_set
    some = sampled(whole, 30, 2, seed=0)
    for owner, nodes in some.tests.items():
        exact = 30 * len(whole.tests[owner]) / DATA.referee.tested
        assert abs(len(nodes) - exact) <= 1
    assert all(len(nodes) >= 1 for nodes in sampled(whole, 1, 2, seed=0).tests.values())


def test_the_interval_holds_the_share_of_all_in_95_of_100_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    held = 0
    for _ in range(2000):
        share = float((torch.rand(150, generator=generator) < 0.83).double().mean())
        low, high = interval(share, 150)
        held += low <= 0.83 <= high
    assert 0.93 <= held / 2000 <= 0.97
    assert interval(1.0, 10)[1] == pytest.approx(1.0) and interval(0.0, 10)[0] == pytest.approx(0.0)


def test_a_result_says_what_was_scored() -> None:
    asked = Experiment(
        **SMALL, dataset={"nodes": 400, "features": 24}, rounds=3, policy="masked", evaluate_every=2,
        evaluate_sample=20,
    )  # fmt: skip
    federation = make_federation(asked)
    first = lead(asked, asked.make_algorithm(), federation)
    assert "scored every 2 rounds" in first and f"about 20 of {federation.referee.tested} test nodes" in first
    result = run_result(execute(asked, None), asked)
    sample = result["evaluation"]["sample"]
    assert result["evaluation"]["every"] == 2
    assert sample["of"] == federation.referee.tested and abs(sample["nodes"] - 20) <= 3
    assert sample["low"] <= result["accuracy"]["global"] <= sample["high"]
    assert mean_result([result, result])["evaluation"]["every"] == 2


def test_a_sample_as_large_as_the_test_set_is_the_test_set() -> None:
    run = sfg.train(sfg.FedSage(), DATA, "plaintext", rounds=1, evaluate_sample=10_000)
    whole = sfg.train(sfg.FedSage(), DATA, "plaintext", rounds=1)
    assert run.accuracy == whole.accuracy and run.federation.referee.drawn_from is None


class Mine(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(x)
        return scores


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (sfg.FedSage(), {"evaluation": "in_band"}),
        (sfg.FedAvg(model=Mine), {}),  # how far it reads, nobody knows
        (sfg.FedGcn(), {}),
    ],
)
def test_a_sample_that_cannot_be_scored_is_refused(algorithm: Any, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="evaluate_sample = 10"):
        sfg.train(algorithm, DATA, "masked", rounds=1, evaluate_sample=10, **options)


def test_an_interval_of_scores_that_nobody_makes_is_refused() -> None:
    with pytest.raises(BadInput, match="evaluate_every = 2"):
        sfg.train(sfg.FedSage(), DATA, "masked", rounds=4, evaluation="at_home", evaluate_every=2)


def test_own_networks_are_given_the_graph_itself_and_others_a_copy() -> None:
    """The table of a graph's links is kept by the tensor, and a foreign model may write to what it gets."""
    given = []

    class Writes(Mine):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            given.append(edge_index.data_ptr())
            edge_index.zero_()
            return super().forward(x.zero_(), edge_index)

    graph = DATA.referee.test_set.inputs
    before = graph.edge_index.clone(), graph.x.clone()
    with torch.no_grad():
        scores_of(Writes(24, 4), graph)
    assert torch.equal(graph.edge_index, before[0]) and torch.equal(graph.x, before[1])
    assert given != [graph.edge_index.data_ptr()]


class NanPredictions(sfg.FedAvg):
    """Scores that are NaN for half of the nodes, by an override of a user's own."""

    name = "nan-predictions"

    def predict(self, released: Any, data: Any, schema: Any) -> torch.Tensor:
        scores = super().predict(released, data, schema)
        scores[: len(scores) // 2] = torch.nan
        return scores


def test_predictions_that_are_nan_are_named_once_and_count_as_wrong(
    recwarn: pytest.WarningsRecorder,
) -> None:
    honest = sfg.train(sfg.FedAvg(), DATA, "plaintext", rounds=2, seed=0)
    run = sfg.train(NanPredictions(), DATA, "plaintext", rounds=2, seed=0)
    named = [one for one in recwarn if one.category is sfg.ScoreWarning]
    assert len({str(one.message) for one in named}) == 1 and "nan-predictions" in str(named[0].message)
    assert run.accuracy["global"] < honest.accuracy["global"]
