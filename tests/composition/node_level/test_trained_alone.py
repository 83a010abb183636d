"""``training.fanout`` of 0: nodes are trained on alone, and links are read where predictions are made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training import local_training
from secure_fedgraph.core.accounting.events import SampledGaussian
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.parameters import glorot, parameters_of
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.protocol.transcript import everything

ALONE: dict[str, Any] = {"fanout": (0, 0), "hidden": (8, 8), "batch": 8}
AVERAGED = [sfg.FedAvg, sfg.algorithms.FedProx, sfg.FedSage]
STEPS = PrivateSteps(noise=2.0, rate=0.3, steps=2)


@pytest.fixture
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=60, features=8, seed=0)


def uploads(algorithm: sfg.Algorithm, federation: sfg.Federation, channel: str = "update") -> list[Any]:
    run = sfg.train(algorithm, federation, "plaintext", rounds=2, keep=everything)
    return run.transcript.view("server").uploads(channel)


def rewired(federation: sfg.Federation) -> None:
    """Every owner gets a few links of other nodes in the place of its own."""
    for graph in federation.owners.values():
        graph.edge_index = (graph.edge_index[:, :6] + 1) % int(graph.num_nodes)
        graph.cross_links = graph.cross_links[:, :0]


def alike(before: list[Any], after: list[Any]) -> bool:
    return all(
        torch.equal(torch.as_tensor(one.values[k]), torch.as_tensor(other.values[k]))
        for one, other in zip(before, after, strict=True)
        for k in one.values
    )


@pytest.mark.parametrize("kind", AVERAGED)
def test_no_byte_that_leaves_depends_on_a_link(kind: Any, federation: sfg.Federation) -> None:
    before = uploads(kind(**ALONE), federation)
    rewired(federation)
    assert len(before) == 6 and alike(before, uploads(kind(**ALONE), federation))


def test_with_neighbours_it_does(federation: sfg.Federation) -> None:
    """What the test above would show if links were read."""
    near = {**ALONE, "fanout": (2, 2)}
    before = uploads(sfg.FedSage(**near), federation)
    rewired(federation)
    assert not alike(before, uploads(sfg.FedSage(**near), federation))


def test_meta_gradients_depend_on_none_either(federation: sfg.Federation) -> None:
    made = sfg.algorithms.GraphFL(**ALONE, meta_rounds=1, support=3, query=3)
    before = uploads(made, federation, "meta_gradient")
    rewired(federation)
    assert before and alike(before, uploads(made, federation, "meta_gradient"))


@pytest.mark.parametrize("kind", [sfg.FedSage, sfg.Local, sfg.algorithms.DFedGnn])
def test_training_is_handed_no_link(
    kind: Any, federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's door takes them away, whatever the algorithm would do."""
    seen, real = [], local_training._batches

    def watched(client: Any, graph: Data, settings: Any) -> Any:
        seen.append((graph.num_edges, client.graph.num_edges, client.graph.cross_links.shape[1]))
        return real(client, graph, settings)

    monkeypatch.setattr(local_training, "_batches", watched)
    policy = "sealed" if kind is sfg.algorithms.DFedGnn else "plaintext"
    sfg.train(kind(**ALONE), federation, policy, rounds=1)
    assert seen == [(0, 0, 0)] * 3
    assert all(graph.num_edges for graph in federation.owners.values())


def test_an_edge_costs_nothing_in_result_and_ledger(federation: sfg.Federation) -> None:
    run = sfg.train(sfg.FedSage(**ALONE), federation, "masked", rounds=1)
    assert run.privacy("edge")["epsilon"] == 0 and run.privacy("node")["epsilon"] == "inf"
    assert run.charges and all(charge.steps["edge"] == () for charge in run.charges)
    near = sfg.train(sfg.FedSage(**{**ALONE, "fanout": (2, 2)}), federation, "masked", rounds=1)
    assert near.privacy("edge")["epsilon"] == "inf"


def test_scores_that_owners_send_read_links_and_an_edge_pays(federation: sfg.Federation) -> None:
    run = sfg.train(sfg.FedSage(**ALONE), federation, "masked", rounds=1, evaluation="in_band")
    assert run.privacy("edge")["epsilon"] == "inf"


def test_one_node_is_one_record(federation: sfg.Federation) -> None:
    policy = replace(sfg.policies.masked(), steps=STEPS)
    algorithm = sfg.FedSage(**ALONE)
    run = sfg.train(algorithm, federation, policy, rounds=1)
    assert algorithm.occurrences("node") == 1 and algorithm.hops == 0
    assert {charge.steps["node"][0] for charge in run.charges} == {SampledGaussian(2.0, 0.3, 2, "zero-out")}
    assert run.privacy("edge")["epsilon"] == 0
    near = sfg.FedSage(**{**ALONE, "fanout": (2,), "hidden": (8,)}, places=8, crowd=8)
    several = sfg.train(near, federation, policy, rounds=1)
    assert float(run.privacy("node")["epsilon"]) < float(several.privacy("node")["epsilon"]) / 4


def test_no_table_of_neighbours_is_made_and_no_crowd_is_refused(federation: sfg.Federation) -> None:
    graph = federation.owners["owner-0"]
    hub = torch.arange(1, int(graph.num_nodes))
    links = torch.stack([torch.zeros_like(hub), hub])
    graph.edge_index = torch.cat([links, links.flip(0)], dim=1)
    sfg.FedSage(**ALONE, crowd=0).check_touched(graph, "node")
    with pytest.raises(BadInput, match=r"training\.crowd = 0"):
        sfg.FedSage(**{**ALONE, "fanout": (1, 1)}, crowd=0).check_touched(graph, "node")


def test_whoever_predicts_reads_a_node_among_its_neighbours() -> None:
    schema, algorithm = Schema(4, 2), sfg.FedSage(**{**ALONE, "fanout": (0,), "hidden": (4,)})
    graph = Data(x=torch.rand(4, 4), edge_index=torch.tensor([[0, 1, 2], [1, 0, 1]]))
    model = GraphSage(4, 2, (4,))
    glorot(model, 0)
    params = parameters_of(model)
    found = algorithm.predict(params, graph, schema)
    near = {0: [0, 1], 1: [0, 1, 2], 2: [2], 3: [3]}
    for node, others in near.items():
        layer = model._sage[0]
        joined = layer.join(layer.own(graph.x[node]), layer.neighbour(graph.x[others]).mean(0))
        assert torch.allclose(found[node], model.head(joined / joined.norm()), atol=1e-5), node
    assert graph.edge_index.shape == (2, 3)


def test_training_sees_what_prediction_sees_without_links() -> None:
    schema, algorithm = Schema(4, 2), sfg.FedSage(**ALONE)
    graph = Data(x=torch.rand(4, 4), y=torch.tensor([0, 1, 1, 0]), edge_index=torch.empty(2, 0).long())
    model = algorithm.start(schema, 0)
    loss = local_training.loss_on(_Client(graph), graph, model, algorithm.settings)  # type: ignore[arg-type]
    expected = nn.functional.cross_entropy(algorithm.predict(parameters_of(model), graph, schema), graph.y)
    assert float(loss(torch.arange(4)).detach()) == pytest.approx(float(expected), abs=1e-6)


class _Client:
    true_labels = 1.0
    schema = Schema(4, 2)

    def __init__(self, graph: Data) -> None:
        self.graph = graph

    def generator(self, purpose: str) -> torch.Generator:
        return torch.Generator()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            lambda: sfg.FedSagePlus(fanout=(0, 0)),
            r"training\.fanout = \[0, 0\]: generated neighbours.*fedsage",
        ),
        (lambda: sfg.FedEgo(fanout=(0, 0)), r"training\.fanout = \[0, 0\]: a mash mixes .* give 1 or more"),
        (lambda: sfg.FedAvg(**ALONE, network="ego"), r"training\.fanout = \[0, 0\]: the ego network"),
        (lambda: sfg.FedAvg(**ALONE, model=nn.Linear(8, 3)), r"training\.fanout = \[0, 0\]: a model of your"),
        (lambda: sfg.FedSage(fanout=(0, 2)), r"'fanout' = \(0, 2\): .* or 0 for every layer"),
        (lambda: sfg.FedSage(fanout=(-1, 2)), r"'fanout' = \(-1, 2\): .* or 0 for every layer"),
        (lambda: sfg.algorithms.Glasu(fanout=0), r"'fanout' = 0"),
    ],
)
def test_who_cannot_do_it_says_so_before_any_work(made: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        made()


def test_whole_graphs_are_not_trained_on_without_their_links() -> None:
    made = sfg.FedAvg(fanout=(0, 0), hidden=(8, 8), network="gin")
    with pytest.raises(BadInput, match=r"training\.fanout = \[0, 0\]: a whole graph .* leave fanout out"):
        made.check(Schema(3, 2, kind="graph"))
