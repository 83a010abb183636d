"""The first layer on rows of few non-zeros, and what is made once: the same numbers, for less."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training.optimizers import bound_gradients
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.parameters import blank_linear, glorot
from secure_fedgraph.models.sparse_rows import compact_of

WORDS = citation(nodes=300, features=500, words_per_node=6, mean_degree=3.0, seed=1)


def model() -> GraphSage:
    made = GraphSage(500, 4, (16, 8))
    glorot(made, 0)
    return made


@pytest.mark.parametrize("counted", [False, True])
def test_sparse_rows_give_the_scores_and_gradients_of_dense_ones(counted: bool) -> None:
    x = WORDS.x * (1 + torch.arange(500) % 3 if counted else 1)
    tree = NeighbourTable.of(WORDS.edge_index, 300).sample_tree(
        torch.arange(0, 300, 5), (3, 3), torch.Generator().manual_seed(0)
    )
    assert any(bool((level < 0).any()) for level in tree)  # isolated nodes have no neighbour
    found = []
    for features in (x, model().prepared(x)):
        net = model()
        scores = net.forward_tree(features, tree)
        scores.square().sum().backward()
        found.append((scores, [p.grad for p in net.parameters()]))
    assert isinstance(model().prepared(x), SparseMatrix)
    assert torch.allclose(found[0][0], found[1][0], atol=1e-5)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found[0][1], found[1][1], strict=True))


def test_scores_of_a_whole_graph_are_those_with_gradients() -> None:
    """Two ways through the layers: by sums without a row a link, and by the links."""
    net, dense = model(), WORDS.x + 0.1
    for x in (WORDS.x, dense):
        with_gradients = net(x, WORDS.edge_index)
        with torch.no_grad():
            without = net(x, WORDS.edge_index)
        assert torch.allclose(with_gradients, without, atol=1e-5)


def test_scores_of_a_graph_in_parts_are_those_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        whole = model()(WORDS.x, WORDS.edge_index)
        monkeypatch.setattr("secure_fedgraph.models.gnn.AT_ONCE", 70)
        assert torch.allclose(whole, model()(WORDS.x, WORDS.edge_index), atol=1e-6)


def test_links_are_sorted_once_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_links: list[int] = []
    make = NeighbourTable.__init__

    def counted(self: NeighbourTable, edge_index: torch.Tensor, num_nodes: int) -> None:
        sorted_links.append(num_nodes)
        make(self, edge_index, num_nodes)

    monkeypatch.setattr(NeighbourTable, "__init__", counted)
    data = sfg.federate("synthetic-citation", clients=3, seed=0, partition="random", nodes=150, features=16)
    sfg.train(sfg.FedSage(), data, "plaintext", rounds=4)
    assert sorted(sorted_links) == [50, 50, 50, 150]  # every owner's, and the referee's


def test_what_is_kept_is_made_again_after_a_change_in_place() -> None:
    links, x = torch.tensor([[1, 2], [0, 0]]), torch.zeros(3, 50)
    x[0, 0] = 1.0
    before, rows = NeighbourTable.of(links, 3), compact_of(x)
    links[0, 0] = 0
    x[1, 1] = 5.0
    assert NeighbourTable.of(links, 3) is not before
    assert NeighbourTable.of(links, 3).neighbours(0).tolist() == [0, 2]
    after = compact_of(x)
    assert isinstance(rows, SparseMatrix) and isinstance(after, SparseMatrix)
    assert len(after.column) == 2 and compact_of(x) is after


class MyOwn(GraphSage):
    """A subclass elsewhere: it may write to its features."""


def test_a_subclass_trains_on_sparse_rows_too() -> None:
    data = sfg.federate("synthetic-citation", clients=2, partition="random", nodes=90, features=400)
    run = sfg.train(sfg.FedAvg(model=MyOwn(400, 4)), data, "plaintext", rounds=1)
    assert run.history[-1]["accuracy"]["global"] >= 0


@pytest.mark.parametrize(
    ("values", "kept", "sound"),
    [
        ([3.0, 4.0], [3.0, 4.0], True),
        ([30.0, 40.0], [7.0711, 7.0711], True),
        ([float("nan"), 1.0], [0.0, 1.0], False),
        ([float("inf"), 1.0], [0.0, 1.0], False),
        ([3e38, 0.0], [10.0, 0.0], True),  # whose square is infinite
    ],
)
def test_gradients_are_cut_as_before_whether_or_not_they_need_it(
    values: list[float], kept: list[float], sound: bool
) -> None:
    parameter = nn.Parameter(torch.zeros(len(values)))
    parameter.grad = torch.tensor(values)
    assert bound_gradients([parameter], 10.0) is sound
    assert torch.allclose(parameter.grad, torch.tensor(kept), atol=1e-3)


def test_a_blank_layer_draws_nothing_and_is_a_linear_layer() -> None:
    before = torch.random.get_rng_state()
    made: Any = blank_linear(3, 2, bias=False)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert type(made) is nn.Linear and made.bias is None
    made.reset_parameters()
    assert bool(made.weight.any())
