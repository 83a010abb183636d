"""FedGCN against a GCN on the graph of all owners, and what hostile owners may ask and send."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import subgraph

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedgcn.algorithm import COUNTS, SHARE, SUMS, OwnersGraph
from secure_fedgraph.algorithms.fedgcn.gcn import Gcn
from secure_fedgraph.attacks import Knowledge, NeighbourSums
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.graph.data.datasets import load
from secure_fedgraph.graph.partition.registry import split_data
from secure_fedgraph.models.parameters import glorot
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
from secure_fedgraph.protocol.transcript import everything

SPLITS = {"random": {}, "label_skew": {"local_tests": 5, "local_share": 0.4}}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, partition="random", nodes=90, features=16)


def answered(own: OwnersGraph, others: list[OwnersGraph]) -> dict[str, torch.Tensor]:
    """What the others' answers add up to."""
    parts = [one.answer(own.asked, len(own.ids)) for one in others]
    return {key: torch.stack([part[key] for part in parts]).sum(0) for key in (SUMS, COUNTS)}


@pytest.mark.parametrize("partition", SPLITS)
def test_two_hops_compute_what_pygs_gcn_computes_on_the_graph_of_all_owners(partition):
    """Owners may hold the same node (label_skew): each node is still added once."""
    dataset = load("synthetic-citation", seed=1, nodes=90, features=16)
    owners = split_data(partition, dataset, 3, 0, **SPLITS[partition]).owners
    held = torch.cat([own.node_id for own in owners]).unique()
    links = subgraph(held, dataset.graph.edge_index, num_nodes=90)[0]
    model = Gcn(16, 4, 8)
    glorot(model, 0)
    first, second = GCNConv(16, 8), GCNConv(8, 4)
    with torch.no_grad():
        for mine, theirs in ((model.first, first), (model.second, second)):
            theirs.lin.weight.copy_(mine.weight)
            theirs.bias.copy_(mine.bias)
        expected = second(first(dataset.graph.x, links).relu(), links)
        parts = [OwnersGraph(own, 2) for own in owners]
        for own in parts:
            others = [one for one in parts if one is not own]
            found = model.from_sums(*own.completed(answered(own, others)))
            assert torch.allclose(found, expected[own.ids], atol=1e-5)
            one_hop = OwnersGraph(owners[parts.index(own)], 1)
            sums, _ = one_hop.completed(answered(one_hop, others))
            assert torch.allclose(sums, own.completed(answered(own, others))[0][: len(own.ids)], atol=1e-6)


def test_without_an_exchange_it_is_a_gcn_on_the_owners_own_links(federation):
    graph = federation.owners["owner-0"]
    model = Gcn(16, 4, 8)
    glorot(model, 1)
    with torch.no_grad():
        own = OwnersGraph(graph, 0)
        assert torch.allclose(model.from_sums(*own.completed(None)), model(graph.x, graph.edge_index))


def test_the_only_neighbour_at_other_owners_is_read_exactly_and_the_server_reads_nothing(federation):
    policies = {"plaintext": sfg.policies.plaintext(), "masked": sfg.policies.masked()}
    runs = {
        name: sfg.train(sfg.FedGcn(hops=1), federation, policy, rounds=1, keep=everything)
        for name, policy in policies.items()
    }
    nodes = {tuple(row.tolist()) for graph in federation.owners.values() for row in graph.x.bool()}
    guess = NeighbourSums().residual(runs["masked"].transcript.view("owner-0"), Knowledge())
    (rows,) = guess.values.values()
    own = OwnersGraph(federation.owners["owner-0"], 1)
    lonely = int((torch.bincount(own.crossing[0]) == 1).sum())
    assert len(rows) == lonely > 0
    assert all(tuple((row > 0.5).tolist()) in nodes for row in rows)
    NeighbourSums().run(runs["plaintext"].transcript.view("server"), Knowledge())
    for aim in (NeighbourSums().run, NeighbourSums().residual):
        with pytest.raises(sfg.attacks.Blind):
            aim(runs["masked"].transcript.view("server"), Knowledge())


class _Asked:
    """A client that is asked, as the answer sees it."""

    def __init__(self, federation: sfg.Federation, name: str) -> None:
        self.name, self.graph, self.schema = name, federation.owners[name], federation.schema
        self.memory: dict = {}


@pytest.mark.parametrize(
    ("ids", "own", "words"),
    [
        (torch.tensor([0.0, 1.0]), 3, None),
        (torch.tensor([0.0]), -1, None),
        (torch.tensor([-1.0, 2.0]), 1, None),
        (torch.tensor([]), 0, None),
        (torch.tensor([0.0]), 1e30, None),
        (torch.zeros(1).expand(2**24), 1, "more than"),  # before the rows are made
    ],
)
def test_questions_that_no_owner_asks_are_refused(federation, ids, own, words):
    asked = {"wanted_nodes": {"ids": ids, "own": torch.tensor(float(own))}}
    with pytest.raises(HostileMessage, match=words):
        sfg.FedGcn().neighbour_sums(_Asked(federation, "owner-0"), asked)


@pytest.mark.parametrize("short", [SUMS, COUNTS])
def test_sums_of_other_rows_than_asked_for_are_refused(federation, short: str):
    client = _Asked(federation, "owner-0")
    due = len(sfg.FedGcn()._owners_graph(client).asked)
    sent = {SUMS: torch.zeros(due, 16), COUNTS: torch.zeros(due)}
    read = SimpleNamespace(total={**sent, short: sent[short][:2]})
    client.memory.clear()
    with pytest.raises(HostileMessage, match=f"read 2 {short}"):
        sfg.FedGcn().complete(client, read)
    assert not client.memory


def test_an_id_that_is_asked_twice_gets_its_sum_twice():
    graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]), node_id=torch.tensor([4, 2, 9]))
    made = OwnersGraph(graph, 1).answer(torch.tensor([7, 2, 2, 4]), 1)
    assert (made[COUNTS] / SHARE).tolist() == [0, 3, 3, 2]
    assert torch.equal(made[SUMS][1], made[SUMS][2])


def test_owners_who_know_no_ids_are_refused_with_the_setting_without_an_exchange(federation):
    owners = {name: Data(x=g.x, y=g.y, edge_index=g.edge_index) for name, g in federation.owners.items()}
    silos = sfg.federate(owners)
    with pytest.raises(BadInput, match="hops=0"):
        sfg.train(sfg.FedGcn(), silos, "masked", rounds=1)
    assert sfg.train(sfg.FedGcn(hops=0), silos, "masked", rounds=1).history


def test_randomised_links_take_the_links_to_other_owners_away(federation):
    """They are links too, and nobody randomised them."""
    graph = federation.owners["owner-0"].clone()
    assert graph.cross_links.shape[1] > 0
    policy = replace(sfg.policies.masked(), randomizers=(RandomisedLinks(3.0),))
    run = sfg.train(sfg.FedGcn(hops=1), federation, policy, rounds=1, keep=everything)
    for seen in run.transcript.view("owner-0").sums("neighbour_sums"):
        assert not seen.values["counts"].any()


@pytest.mark.parametrize("hops", [1, 2])
def test_the_shared_model_is_combined_with_an_owners_where_links_were_randomised(federation, hops, caplog):
    """The exchange was without links to others' nodes, and the owner's own test is on a graph with them."""
    policy = replace(sfg.policies.masked(), randomizers=(RandomisedLinks(3.0),))
    run = sfg.train(sfg.FedGcn(hops=hops), federation, policy, rounds=1)
    assert {"personal", "own"} <= run.accuracy.keys()
    assert not caplog.records
