"""Layer-wise sampling: sets that nest, links of one's own, and products that equal the dense ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.sample.layers import draw_batch, grow, links_between, public_set, union
from secure_fedgraph.graph.sample.trees import NeighbourTable

N = 50


@pytest.fixture(scope="module")
def table() -> NeighbourTable:
    return NeighbourTable(citation(nodes=N, features=8, classes=2, seed=1).edge_index, N)


def dense(table: NeighbourTable, inputs: Tensor, outputs: Tensor, loop: float) -> Tensor:
    """Rows of ``outputs`` of the normalised adjacency of the subgraph induced on ``inputs``."""
    a = torch.zeros(N, N)
    for node in range(N):
        a[node, table.neighbours(node)] = 1
    a = a[inputs][:, inputs] + loop * torch.eye(len(inputs))
    scale = a.sum(1).rsqrt()
    return (scale[:, None] * a * scale)[torch.searchsorted(inputs, outputs)]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("loop", [1.0, 2.0])
def test_the_sparse_product_is_the_dense_one_and_so_is_its_gradient(table, loop):
    outputs = torch.tensor([1, 4, 7, 30])
    inputs = grow(table, outputs, 3, generator())
    links = links_between(table, inputs, outputs, loop)
    x = torch.randn(len(inputs), 5, generator=generator(), requires_grad=True)
    wanted = dense(table, inputs, outputs, loop)
    assert torch.allclose(links.spread(x), wanted @ x, atol=1e-6)
    (found,) = torch.autograd.grad(links.spread(x).square().sum(), x)
    (expected,) = torch.autograd.grad((wanted @ x).square().sum(), x)
    assert torch.allclose(found, expected, atol=1e-5)


def test_without_links_a_node_sees_itself(table):
    alone = NeighbourTable(torch.empty(2, 0, dtype=torch.long), N)
    nodes = torch.tensor([3, 9])
    x = torch.randn(2, 4, generator=generator())
    assert torch.allclose(links_between(alone, nodes, nodes, 2.0).spread(x), x)
    assert torch.equal(grow(alone, nodes, 3, generator()), nodes)


def test_a_layer_without_outputs_gives_no_rows_and_no_gradient(table):
    inputs, nothing = torch.tensor([1, 2, 3]), torch.empty(0, dtype=torch.long)
    x = torch.ones(3, 4, requires_grad=True)
    rows = links_between(table, inputs, nothing).spread(x)
    assert rows.shape == (0, 4)
    assert torch.equal(torch.autograd.grad(rows.sum(), x)[0], torch.zeros(3, 4))


def test_sets_nest_and_hold_own_neighbours_only(table):
    nodes = torch.tensor([2, 5, 11])
    below = grow(table, nodes, 2, generator())
    assert torch.isin(nodes, below).all()
    assert (below.diff() > 0).all()
    near = torch.cat([nodes, *[table.neighbours(int(v)) for v in nodes]])
    assert torch.isin(below, near).all()
    assert len(below) <= len(nodes) * 3


def test_an_output_that_is_no_input_is_refused(table):
    with pytest.raises(BadInput, match="not among the inputs"):
        links_between(table, torch.tensor([1, 2]), torch.tensor([3]))


def test_a_batch_is_what_the_seed_says():
    training = torch.arange(0, 40, 2)
    batch = draw_batch(training, 6, seed=3)
    assert torch.equal(batch, draw_batch(training, 6, seed=3))
    assert not torch.equal(batch, draw_batch(training, 6, seed=4))
    assert len(batch) == 6
    assert torch.isin(batch, training).all()
    assert (batch.diff() > 0).all()
    assert torch.equal(draw_batch(training, 100, seed=0), training)


def test_public_sets_are_padded_to_their_size():
    batch = torch.tensor([4, 17])
    found = public_set(batch, N, 20, seed=1)
    assert len(found) == len(found.unique()) == 20
    assert torch.isin(batch, found).all()
    assert torch.equal(public_set(batch, N, 1, seed=1), batch)
    assert torch.equal(public_set(batch, N, 1000, seed=1), torch.arange(N))


def test_a_union_holds_each_node_once():
    assert union([torch.tensor([5, 1]), torch.tensor([1, 2])], 6).tolist() == [1, 2, 5]
