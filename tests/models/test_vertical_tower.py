"""One client's layers: shapes, local aggregation, seeded passes, attention by hand."""

from __future__ import annotations

import pytest
import torch

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.layers import Links, links_between
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.vertical.tower import Noise, Tower, locally, segments_of

NODES = torch.arange(5)
TABLE = NeighbourTable(torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]]), 5)  # node 4 is alone


def between(loop: float = 1.0) -> Links:
    return links_between(TABLE, NODES, NODES, loop)


def made(backbone: str, aggregated: tuple[int, ...] = (2, 4)) -> Tower:
    tower = Tower(3, 2, 8, segments_of(4, aggregated), backbone)  # type: ignore[arg-type]
    tower.start(0)
    return tower


@pytest.mark.parametrize("backbone", ["residual", "gcnii", "gcn", "gat"])
def test_a_segment_gives_hidden_rows_and_scores_take_what_is_aggregated(backbone):
    tower = made(backbone)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    first = tower.segment(0, None, x, [between()] * 2, Noise())
    assert first.shape == (5, 8)
    second = tower.segment(1, first, x, [between()] * 2, Noise())
    assert second.shape == (5, 8)
    assert tower.scores(second).shape == (5, 2)
    used = torch.autograd.grad(tower.scores(second).sum(), list(tower.parameters()))
    assert all(torch.isfinite(g).all() for g in used)  # and every parameter takes part


def test_dropout_is_the_seeds():
    tower, x = made("gcn"), torch.ones(5, 3)
    tower.train()
    one, same, other = (tower.segment(0, None, x, [between()] * 2, Noise(0.5, s)) for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    tower.eval()
    assert torch.equal(
        tower.segment(0, None, x, [between()] * 2, Noise(0.5, 1)),
        tower.segment(0, None, x, [between()] * 2, Noise(0.5, 2)),
    )


def test_one_row_is_normalised_by_what_was_settled():
    tower = made("residual")
    tower.train()
    links = links_between(TABLE, NODES, torch.tensor([4]), 2.0)
    assert torch.isfinite(tower.segment(0, None, torch.ones(5, 3), [between(2.0), links], Noise())).all()


def test_attention_weighs_neighbours_by_their_logits():
    """Two neighbours and itself, one head's numbers by hand."""
    tower = made("gat")
    h = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))
    found = tower._attend(1, between(), h)
    values = (h @ tower.layers[1].weight.T).view(5, 8, 1)
    source, target = tower.attention[1][:8], tower.attention[1][8:]
    members = torch.tensor([1, 3, 0])  # node 0's neighbours and itself
    logits = torch.nn.functional.leaky_relu(
        (values[members] * source).sum(-1) + (values[0] * target).sum(-1), 0.2
    )
    wanted = (logits.softmax(0).unsqueeze(-1) * values[members]).sum(0).flatten()
    assert torch.allclose(found[0], wanted + tower.layers[1].bias, atol=1e-6)
    assert torch.allclose(found[4], values[4].flatten(), atol=1e-6)  # alone: only itself


def test_local_aggregation_replaces_ones_own_part():
    rows = [torch.full((2, 3), float(i)) for i in range(3)]
    mean, fresh = torch.stack(rows).mean(0), torch.full((2, 3), 7.0)
    assert torch.allclose(locally(mean, rows[1], rows[1], 3), mean)
    assert torch.allclose(locally(mean, rows[1], fresh, 3), torch.stack([rows[0], fresh, rows[2]]).mean(0))


def test_gradients_flow_through_ones_own_rows_only():
    aggregate = torch.ones(2, 3, requires_grad=True)
    fresh = torch.ones(2, 3, requires_grad=True)
    locally(aggregate.detach(), torch.ones(2, 3), fresh, 4).sum().backward()
    assert fresh.grad is not None
    assert torch.equal(fresh.grad, torch.full((2, 3), 0.25))


def test_stretches_end_with_the_last_layer():
    assert segments_of(4, (1, 2, 3, 4)) == (range(1), range(1, 2), range(2, 3), range(3, 4))
    with pytest.raises(BadInput, match="do not end with the last of 4"):
        segments_of(4, (2,))


@pytest.mark.parametrize("backbone", ["residual", "gcnii", "gcn", "gat"])
def test_rows_stay_within_the_bound(backbone):
    tower = made(backbone)
    far = torch.full((5, 3), 1e4)
    with torch.no_grad():
        assert float(tower.segment(0, None, far, [between()] * 2, Noise()).abs().max()) <= 8.0
        tower.bound = 1e9
        assert float(tower.segment(0, None, far, [between()] * 2, Noise()).abs().max()) > 8.0


@pytest.mark.parametrize("backbone", ["residual", "gcnii"])
def test_rows_by_their_non_zeros_give_the_same_scores_and_gradients(backbone):
    tower = made(backbone)
    torch.nn.init.constant_(tower.entry.bias, 0.3)
    x = (torch.rand(5, 3, generator=torch.Generator().manual_seed(2)) < 0.4).float() * 0.5
    found = []
    for rows in (x, SparseMatrix.of(x)):
        top = tower.segment(
            1, tower.segment(0, None, rows, [between()] * 2, Noise()), rows, [between()] * 2, Noise()
        )
        found.append((top, torch.autograd.grad(top.square().sum(), tower.entry.weight)[0]))
    for dense, sparse in zip(*found, strict=True):
        assert torch.allclose(dense, sparse, atol=1e-5)


def test_what_goes_around_a_segment_follows_its_nodes_through_every_layer():
    tower = made("residual").eval()
    middle, last = torch.tensor([0, 1, 3, 4]), torch.tensor([3, 4])
    links = [links_between(TABLE, NODES, middle, 2.0), links_between(TABLE, middle, last, 2.0)]
    for layer in tower.layers:
        torch.nn.init.zeros_(layer.weight)  # then nothing but what goes around is left
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    expected = 0.5 * torch.relu(tower.entry(x))[last]
    assert torch.allclose(tower.segment(0, None, x, links, Noise()), expected, atol=1e-6)


def test_what_dropout_leaves_is_as_much_larger():
    tower = made("gcn", aggregated=(1, 4)).train()
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    whole = tower.segment(0, None, x, [between(1.0)], Noise())
    dropped = tower.segment(0, None, x, [between(1.0)], Noise(0.75, seed=4))
    kept = dropped != 0
    assert 0 < int(kept.sum()) < int((whole != 0).sum())
    assert torch.allclose(dropped[kept], 4 * whole[kept])
