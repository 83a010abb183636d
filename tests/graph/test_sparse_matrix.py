"""A sparse product beside the dense one, its gradient, and a GIN's layer beside torch-geometric's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv

from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.gin import GinLayer


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("ones", [True, False])
def test_chosen_rows_are_multiplied_as_dense_ones_with_their_gradients(ones: bool) -> None:
    values = torch.ones(1) if ones else torch.rand(30, 50, generator=seeded(9))
    x = (torch.rand(30, 50, generator=seeded()) < 0.05).float() * values
    rows, chosen = SparseMatrix.of(x), torch.tensor([3, 3, 29, 0])
    assert (rows.value is None) == ones
    weight = torch.rand(50, 4, generator=seeded(1), requires_grad=True)
    assert torch.allclose(rows.select(chosen).times(weight), x[chosen] @ weight, atol=1e-6)
    (sparse,) = torch.autograd.grad(rows.select(chosen).times(weight).square().sum(), weight)
    (dense,) = torch.autograd.grad((x[chosen] @ weight).square().sum(), weight)
    assert torch.allclose(sparse, dense, atol=1e-5)


def test_transposing_twice_gives_the_same_matrix() -> None:
    x = torch.tensor([[0.0, 2.0, 0.0], [3.0, 4.0, 0.0]])
    matrix = SparseMatrix.of(x)
    assert torch.equal(matrix.transposed.times(torch.eye(2)), x.T)
    assert torch.equal(matrix.transposed.transposed.times(torch.eye(3)), x)


LINKS = torch.tensor([[0, 2, 2, 1, 0], [1, 1, 1, 0, 4]])
"""Two links from 2 to 1, one direction only, and node 3 without any."""


@pytest.mark.parametrize("links", [LINKS, torch.empty(2, 0, dtype=torch.long)])
def test_a_gin_layer_is_torch_geometrics(links: Tensor) -> None:
    mlp = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 4))
    theirs, ours = GINConv(mlp), GinLayer(4, inputs=6)
    ours.load_state_dict(theirs.state_dict(), strict=False)
    x = torch.randn(5, 6, generator=seeded(), requires_grad=True)
    found, expected = ours(x, SparseMatrix.of_links(links, 5)), theirs(x, links)
    assert torch.allclose(found, expected, atol=1e-6)
    one, other = (torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected))
    assert torch.allclose(one, other, atol=1e-6)
