"""Families of graphs under a graph's budget: what one graph moves, what stays at home, what is said."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fairgraphfl.moments import FairGraphFLMoments
from secure_fedgraph.algorithms.fedridge import at_home
from secure_fedgraph.algorithms.fedridge.forms import ApflGateMoments, personal_weights
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.pooling import sampled_sum
from secure_fedgraph.experiment.baselines import expected_gain
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.protocol.transcript import everything

SHAPE = (256, 2)


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=3, partition="dirichlet", seed=0, graphs=150)


def client_of(federation: sfg.Federation, graph: Data) -> SimpleNamespace:
    every = torch.arange(len(graph.y))
    return SimpleNamespace(
        graph=graph,
        schema=federation.schema,
        clients=federation.names,
        name=federation.names[1],
        sampled=lambda: every,
    )


@pytest.mark.parametrize("times", [0.01, 1.0, 1e20])
def test_one_graph_moves_its_agents_place_of_the_values_by_one_part_whatever_is_sent(
    federation: sfg.Federation, times: float
) -> None:
    """Each training graph is taken out of the owner's data in turn, before anything is computed."""
    algorithm, graph = FairGraphFLMoments(), federation.owners[federation.names[1]]
    _, worth, _ = algorithm.in_use
    assert worth.unit_contribution is not None
    along = times * torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))

    def opened(graph: Data) -> torch.Tensor:
        sent = algorithm.worth(client_of(federation, graph), {"along": along})
        _, total = sampled_sum(sent, worth.unit_contribution, Unit.GRAPH, 0.0)
        return torch.from_numpy(total).flatten()

    whole, moved = opened(graph), []
    for one in graph.train_mask.nonzero().flatten():
        kept = (torch.arange(len(graph.y)) != one).nonzero().flatten()
        rest = select_graphs(graph, kept)
        rest.train_mask = graph.train_mask[kept]
        moved.append(whole - opened(rest))
    apart = torch.stack(moved)
    assert bool((apart[:, [0, 2]] == 0).all())
    assert 0 < float(apart.norm(dim=1).max()) <= worth.unit_contribution.norm * (1 + 1e-6)


def test_an_agent_of_wrong_labels_has_a_negative_value_and_is_given_nothing() -> None:
    federation = sfg.federate("synthetic-molecules", clients=4, partition="random", seed=1, graphs=400)
    wrong = federation.names[2]
    federation.owners[wrong].y = 1 - federation.owners[wrong].y
    run = sfg.train(FairGraphFLMoments(), federation, "plaintext", keep=everything)
    notes = run.algorithm.notes(run.state)
    values, payoffs = notes["values"], notes["payoffs"]
    assert values[wrong] < 0 < min(value for name, value in values.items() if name != wrong)
    assert sum(payoffs.values()) == pytest.approx(1) and payoffs[wrong] == min(payoffs.values())
    assert notes["noise_on_alignment"] == 0
    given = {one.recipient: one.bytes for one in run.transcript.sent if one.channel == "reward"}
    assert given[wrong] + 8 * SHAPE[0] < min(given[name] for name in values if name != wrong)


def test_a_shared_model_of_noise_leaves_an_owner_what_it_is_alone(federation: sfg.Federation) -> None:
    algorithm = ApflGateMoments()
    for graph in federation.owners.values():
        client = client_of(federation, graph)
        noise = 50 * torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))
        alone = personal_weights(algorithm, client, torch.zeros(SHAPE))
        assert torch.equal(personal_weights(algorithm, client, noise), alone)


def test_the_gate_leaves_each_record_out_of_the_regression_that_it_judges() -> None:
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(12, 5, generator=draw)
    t, released = torch.randn(12, 2, generator=draw), torch.randn(5, 2, generator=draw)
    errors = {}
    for share in at_home.SHARES:
        for ridge in at_home.RIDGES:
            rest, total = t - share * z @ released, 0.0
            for one in range(12):
                kept = torch.arange(12) != one
                a = z[kept].T @ z[kept] + min(ridge, 1e12) * torch.eye(5)
                own = torch.linalg.solve(a, z[kept].T @ rest[kept])
                total += float((rest[one] - z[one] @ own).square().sum())
            own = torch.linalg.solve(z.T @ z + min(ridge, 1e12) * torch.eye(5), z.T @ rest)
            errors[total] = share * released + own
    found = at_home.personal(released, z, t, z[:0], t[:0])
    assert torch.allclose(found, errors[min(errors)], atol=1e-4)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (sfg.FedAvg, "fedavg-moments"),
        (sfg.FedProx, "fedavg-moments"),
        (sfg.Apfl, "apflgate-moments"),
        (sfg.ApflGate, "apflgate-moments"),
        (sfg.FairGraphFL, "fairgraphfl-moments"),
    ],
)
def test_a_family_takes_its_form_and_keeps_to_the_budget(federation, algorithm, name) -> None:
    budget = sfg.Budget(8.0, 1e-5, "graph")
    with pytest.warns(FormWarning, match="one sum under one noise"):
        run = sfg.train(algorithm(), federation, "distributed_dp", budget=budget)
    assert run.algorithm.name == name and run.form == {"second_moments": "sent"}
    assert 0 < float(run.privacy()["graph"]["epsilon"]) <= 8
    paid = {"moments", "worth"} if "fair" in name else {"moments"}
    assert {charge.channel for charge in run.charges if charge.channel != "reward"} == paid


def test_a_nodes_budget_on_graphs_takes_no_form_of_nodes() -> None:
    experiment = Experiment(
        algorithm="fedavg", data="synthetic-molecules", clients=3, policy="masked", epsilon=4, unit="node"
    )
    assert experiment.make_algorithm().name == "fedavg"


def test_all_metrics_are_of_each_owners_graphs_by_its_own_model_as_the_pooled_auc_is(
    federation: sfg.Federation,
) -> None:
    """They were of every owner's model on everybody's graphs, and stood beside what owners have alone."""
    run = sfg.train(ApflGateMoments(), federation, "plaintext", allow_plaintext=True, evaluation="referee")
    pooled = run.history[-1]["accuracy"]["auc"]
    assert pooled == pytest.approx(run.metrics["auc"]["global"], abs=0.02)  # the second is counted by bins
    assert run.history[-1]["tested"]["items"] == sum(
        int(graph.test_mask.sum()) for graph in federation.owners.values()
    )


def test_a_gain_of_graphs_is_expected_or_not() -> None:
    poor = sfg.federate("synthetic-molecules", clients=8, partition="dirichlet", seed=0, graphs=600)
    assert expected_gain(poor, 0.0, "auc") == ""
    assert "do not expect" in expected_gain(poor, 4.0, "auc")
