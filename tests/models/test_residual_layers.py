"""The hand-written gradients of a ``residual`` segment, beside PyTorch's of the same layers: equal bits."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.graph.sample.layers import Links, links_between
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.vertical.residual import pull
from secure_fedgraph.models.vertical.tower import MOMENTUM, MU, Noise, Tower, segments_of

NODES, COLUMNS, HIDDEN = 40, 12, 16


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def links() -> list[Links]:
    ends = torch.randint(0, NODES, (2, 90), generator=torch.Generator().manual_seed(1))
    table = NeighbourTable(torch.cat([ends, ends.flip(0)], dim=1), NODES)
    sets = [torch.arange(NODES), torch.arange(0, NODES, 2), torch.arange(0, NODES, 6)]
    return [links_between(table, one, next, 2.0) for one, next in pairwise(sets)]


def made(bound: float) -> Tower:
    tower = Tower(COLUMNS, 3, HIDDEN, segments_of(4, (2, 4)), bound=bound)
    tower.start(0)
    with torch.no_grad():
        for name, parameter in tower.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(0.1 * seeded(*parameter.shape, seed=len(name)))
    return tower.train()


def by_pytorch(tower: Tower, number: int, rows: Tensor | None, x: SparseMatrix, noise: Noise) -> Tensor:
    """The same segment by PyTorch's own operations, one after the other."""
    if rows is None:
        rows = F.relu(x.linear(tower.entry.weight) + tower.entry.bias)
    h, kept, generator = rows, torch.arange(len(rows)), torch.Generator().manual_seed(noise.seed)
    for depth, between in zip(tower.segments[number], links(), strict=True):
        norm = tower.norms[depth]
        running = (norm.running_mean, norm.running_var) if noise.settle else (None, None)
        h = F.relu(tower.layers[depth](between.spread(h)))
        h = F.batch_norm(h, *running, norm.weight, norm.bias, training=True, momentum=MOMENTUM)
        if noise.dropout:
            h = h * torch.rand(h.shape, generator=generator).ge_(noise.dropout).div_(1 - noise.dropout)
        kept = kept[between.own]
    h = torch.lerp(rows.index_select(0, kept), h, MU / (number + 1))
    return h.clamp(-tower.bound, tower.bound)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("noise", [Noise(), Noise(0.4, seed=3), Noise(0.4, seed=3, settle=False)])
@pytest.mark.parametrize("bound", [8.0, 0.5])
def test_rows_gradients_and_statistics_are_pytorchs(number: int, noise: Noise, bound: float) -> None:
    x = SparseMatrix.of(seeded(NODES, COLUMNS).clamp(min=1.0) - 1.0)
    found = []
    for run in (Tower.segment, None):
        tower = made(bound)
        given = seeded(NODES, HIDDEN, seed=2).requires_grad_() if number else None
        if run is None:
            rows = by_pytorch(tower, number, given, x, noise)
            (rows * seeded(*rows.shape, seed=4)).sum().backward()
        else:
            rows = run(tower, number, given, x, links(), noise)
            pull(rows, seeded(*rows.shape, seed=4)).backward()
        gradients = {name: p.grad for name, p in tower.named_parameters() if p.grad is not None}
        found.append({"rows": rows.detach(), "given": given.grad if number else rows, **gradients})
        found[-1] |= dict(tower.named_buffers())
    ours, pytorchs = found
    assert ours.keys() == pytorchs.keys()
    assert len(ours) > 8
    for name, value in pytorchs.items():
        assert torch.equal(ours[name], value), name
    cut = float(ours["rows"].abs().max()) == bound
    assert cut == (bound == 0.5)


def test_what_is_not_finite_comes_through() -> None:
    """A client refuses such rows where they are sent; the layers neither hide them nor fail."""
    tower, given = made(8.0), torch.full((NODES, HIDDEN), float("nan"), requires_grad=True)
    rows = tower.segment(1, given, torch.zeros(NODES, COLUMNS), links(), Noise(0.4))
    assert bool(rows.isnan().all())
    pull(rows, torch.ones_like(rows)).backward()
    assert given.grad is not None


def test_weights_that_were_changed_in_between_are_refused() -> None:
    tower = made(8.0)
    rows = tower.segment(0, None, torch.ones(NODES, COLUMNS), links(), Noise())
    with torch.no_grad():
        tower.layers[0].weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        pull(rows, torch.ones_like(rows)).backward()
