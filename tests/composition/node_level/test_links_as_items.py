"""Links as items in whole runs: who is linked, and of which class a link is, under every kind of policy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import linked
import pytest
import torch
from small_graphs import triangles
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import FedProx, FedRidge, FedSgd, GraphFedRidge, GraphFedSgd, Local
from secure_fedgraph.core.errors import BadInput, BudgetExhausted, Refused
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.experiment.baselines import baselines
from secure_fedgraph.federation import with_links_as_items
from secure_fedgraph.graph.schema import Task
from secure_fedgraph.privacy.dp_sgd import PrivateSteps

QUICK: dict[str, Any] = {"hidden": (8, 8), "learning_rate": 0.02, "batch": 32}
ALGORITHMS: dict[str, tuple[sfg.Algorithm, int]] = {
    "fedridge": (FedRidge(), 1),
    "fedsgd": (FedSgd(hidden=8, rate=1.0), 30),  # without sampling: cheap to account
    "fedavg": (sfg.FedAvg(**QUICK), 6),
    "fedprox": (FedProx(**QUICK), 6),
    "fedsage": (sfg.FedSage(**QUICK), 6),
    "local": (Local(**QUICK), 6),
    "alone": (sfg.FedSage(**QUICK, fanout=(0, 0)), 6),
    "own": (sfg.FedAvg(GCN(linked.FEATURES, 8, 2, 8), learning_rate=0.02), 6),
}
pytestmark = pytest.mark.filterwarnings("ignore::secure_fedgraph.forms.FormWarning")
BUDGET = Budget(epsilon=4.0, delta=1e-5, unit="edge")
STEPS = PrivateSteps(noise=1.0, rate=1.0, steps=3, unit="edge")


@pytest.mark.parametrize(("task", "policy"), [(Task.LINKS, "masked"), (Task.LINK_CLASSES, "plaintext")])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_links_are_learned(name: str, policy: str, task: str) -> None:
    algorithm, rounds = ALGORITHMS[name]
    every = {"evaluate_every": rounds}
    run = sfg.train(algorithm, linked.federation(task), policy, rounds=rounds, allow_plaintext=True, **every)
    found = {key: one["global"] for key, one in run.metrics.items()}
    if task == Task.LINKS:
        assert run.headline == "auc" and found.keys() == {"auc", "average_precision", "hits"}
        assert found["auc"] > 0.6 and abs(run.accuracy["auc"] - found["auc"]) < 0.05
    else:
        assert found["auc"] > 0.55 and {"accuracy", "f1", "average_precision"} <= found.keys()
        assert run.commonest_class is not None


@pytest.mark.parametrize("task", [Task.LINKS, Task.LINK_CLASSES])
@pytest.mark.parametrize("name", ["fedridge", "fedsgd"])
def test_a_link_has_a_budget(name: str, task: str) -> None:
    algorithm, rounds = ALGORITHMS[name]
    federation = linked.federation(task)
    run = sfg.train(
        algorithm, federation, "distributed_dp", budget=BUDGET, rounds=rounds, evaluation="in_band"
    )
    assert 3.5 < run.privacy("edge")["epsilon"] <= 4.0 and run.privacy("node")["epsilon"] == "inf"
    assert {row["unit"] for row in run.policy.describe()} == {"edge"}
    assert run.metrics and all(
        0 <= one["low"] <= one["global"] <= one["high"] <= 1 for one in run.metrics.values()
    )


@pytest.mark.parametrize("task", [Task.LINKS, Task.LINK_CLASSES])
def test_noisy_steps_take_each_link_alone(task: str) -> None:
    policy = replace(sfg.policies.masked(), steps=STEPS, scores_noise=5.0)
    run = sfg.train(ALGORITHMS["alone"][0], linked.federation(task), policy, rounds=2, evaluation="in_band")
    assert 0 < run.privacy("edge")["epsilon"] < 50 and run.privacy("node")["epsilon"] == "inf"
    assert run.metrics


@pytest.mark.parametrize(
    ("algorithm", "policy", "budget", "named"),
    [
        (sfg.FedSage(**QUICK), replace(sfg.policies.masked(), steps=STEPS), None, "fanout"),
        (
            ALGORITHMS["alone"][0],
            replace(sfg.policies.masked(), steps=replace(STEPS, unit="node")),
            None,
            "edge",
        ),
        (FedRidge(), "distributed_dp", replace(BUDGET, unit="node"), "node"),
        (sfg.FedSagePlus(), "masked", None, "task"),
        (sfg.FedAvg(nn.Linear(3, 2)), "masked", None, "model"),
        (sfg.FedAvg(network="ego", hidden=(8, 8)), "masked", None, "network"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    algorithm: sfg.Algorithm, policy: Any, budget: Budget | None, named: str
) -> None:
    with pytest.raises((BadInput, BudgetExhausted, Refused), match=named):
        sfg.train(algorithm, linked.federation(), policy, budget=budget, rounds=1)


def stand(graph: Data, federation: sfg.Federation) -> Any:
    """A client whose coins took all rows."""
    return SimpleNamespace(
        graph=graph, schema=federation.schema, sampled=lambda: torch.arange(len(graph.y)), name="mine"
    )


def contributed(algorithm: Any, graph: Data, federation: sfg.Federation) -> Tensor:
    """What each training row of a client contributes, a row each."""
    made = algorithm.for_data(federation.schema)
    if isinstance(made, FedRidge):
        parts = made.moments(stand(graph, federation), {})
        return torch.cat([parts.records, parts.targets], dim=1)
    weights = {key: value + 0.1 for key, value in made.head.init(federation.schema, 0).items()}
    parts = made.gradient(stand(graph, federation), weights)
    return torch.cat([value.flatten(1) for value in parts.values.values()], dim=1)


@pytest.mark.parametrize("task", [Task.LINKS, Task.LINK_CLASSES])
@pytest.mark.parametrize("algorithm", [FedRidge(), FedSgd(hidden=4)])
def test_a_link_moves_one_part_of_what_is_sent(algorithm: sfg.Algorithm, task: str) -> None:
    """Sensitivity by exact enumeration: without any one training link, every other part stays bit by bit."""
    federation = linked.federation(task)
    graph = federation.owners["owner-0"]
    every = contributed(algorithm, graph, federation)
    rows = graph.train_mask.nonzero().flatten()
    assert len(every) == len(rows)
    for place, row in enumerate(rows.tolist()):
        fewer = graph.clone()
        fewer.train_mask = graph.train_mask.clone()
        fewer.train_mask[row] = False
        left = contributed(algorithm, fewer, federation)
        assert torch.equal(left, torch.cat([every[:place], every[place + 1 :]]))


def test_a_link_that_goes_from_the_data_moves_its_part_alone() -> None:
    """And of the wrong ones, whose number is public, the last where that number follows."""
    given = linked.graph()
    before = linked.federation()
    graph = before.owners["owner-0"]
    link = graph.pairs[:, int(graph.train_mask.nonzero()[0])]
    same = (given.edge_index == link[:, None]).all(0) | (given.edge_index == link.flip(0)[:, None]).all(0)
    given.edge_index = given.edge_index[:, ~same]
    owners = {"owner-0": given, "owner-1": linked.graph(1), "owner-2": linked.graph(2)}
    after = with_links_as_items(replace(before, schema=linked.schema(Task.LINKS), owners=owners), 0)
    parts = [
        {tuple(row) for row in contributed(FedRidge(), one.owners["owner-0"], one).tolist()}
        for one in (before, after)
    ]
    assert len(parts[0] - parts[1]) == 2 and not parts[1] - parts[0]


def test_items_are_scored_under_noise_by_no_other_link() -> None:
    """What is counted of a test link for one link's noise depends on no link but itself."""
    federation = linked.federation()
    graph, algorithm = federation.owners["owner-0"], sfg.FedSage(**QUICK).for_data(federation.schema)
    weights = algorithm.init(federation.schema, 0)
    other = graph.clone()
    other.messages = graph.messages[:, :10]
    items = (graph.val_mask | graph.test_mask).nonzero().flatten()
    alone = [algorithm._each_alone(weights, one, federation.schema, items) for one in (graph, other)]
    assert torch.equal(*alone)
    asked = [algorithm._detached_scores(stand(one, federation), weights) for one in (graph, other)]
    assert not torch.equal(*asked)
    assert algorithm.scores_channel(federation.schema, by_item=True).unit is Unit.EDGE


def test_a_link_that_goes_leaves_the_wrong_ones_of_others() -> None:
    links = torch.tensor([[i, (i + step) % 60] for step in (1, 2, 5) for i in range(60)]).T
    links = torch.cat([links, links.flip(0)], dim=1)
    x, gone = torch.rand(60, 4), (links[0] == 7) & (links[1] == 8) | (links[0] == 8) & (links[1] == 7)
    made = [
        sfg.federate({"a": Data(x=x, edge_index=some)}, task="links", seed=0).owners["a"]
        for some in (links, links[:, ~gone])
    ]
    seen = []
    for graph in made:
        rows = (graph.val_mask | graph.test_mask).nonzero().flatten()
        ends, wrong = graph.pairs[:, rows].T.tolist(), graph.wrong.permute(1, 0, 2).tolist()
        seen.append({tuple(one): other for one, other in zip(ends, wrong, strict=True)})
    assert set(seen[1]) <= set(seen[0]) and all(seen[0][one] == wrong for one, wrong in seen[1].items())


def test_alone_and_the_commonest_class_stand_beside() -> None:
    for task in (Task.LINKS, Task.LINK_CLASSES):
        alone = baselines(linked.federation(task), None, "auc")["alone"]
        assert alone["best"] > 0.55 and alone["metrics"]["auc"] > 0.55


@pytest.mark.parametrize(
    ("algorithm", "taken"), [(FedRidge(second_moments="own"), GraphFedRidge), (FedSgd(rate=1.0), GraphFedSgd)]
)
def test_sets_of_graphs_are_learned_by_the_class_for_them(algorithm: sfg.Algorithm, taken: type) -> None:
    graphs = sfg.federate(triangles(), clients=3, partition="random", seed=0)
    run = sfg.train(algorithm, graphs, "distributed_dp", budget=replace(BUDGET, unit="graph"), rounds=1)
    assert isinstance(run.algorithm, taken) and run.privacy("graph")["epsilon"] <= 4.0


def test_a_users_subclass_stays_itself() -> None:
    class Mine(FedRidge):
        """A user's own."""

        name = "mine"

    with pytest.raises(BadInput, match="graph"):
        sfg.train(Mine(), sfg.federate(triangles(), clients=3, partition="random", seed=0), "plaintext")
