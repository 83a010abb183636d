from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from secure_fedgraph.attacks.attack import Blind
from secure_fedgraph.attacks.generator_gradients import BatchResult, batch, single
from secure_fedgraph.attacks.sparse_rows import row_space, sparse_rows
from secure_fedgraph.core.errors import BadInput

SLOTS = 5


@dataclass(frozen=True)
class Answer:
    """One gradient message and the truth behind it, per node and owner."""

    G: Tensor
    g: Tensor
    W: Tensor
    b: Tensor
    scale: float
    nearest: Tensor
    hidden: Tensor
    counts: Tensor


def answer(
    nodes: int,
    owners: int = 1,
    *,
    words: int = 60,
    width: int = 256,
    dropout: float = 0.5,
    counts: Tensor | None = None,
    x: Tensor | None = None,
    seed: int = 0,
) -> Answer:
    """What the owners answer: each draws noise and dropout of its own, and their gradients are added."""
    rng = torch.Generator().manual_seed(seed)
    inner = [_linear(64, 128, rng), _linear(width, 64, rng)]
    W, b = (t.requires_grad_() for t in _linear(SLOTS * words, width, rng))
    x = (torch.rand(120, words, generator=rng) < 0.1).float() if x is None else x
    counts = torch.randint(1, SLOTS + 1, (nodes,), generator=rng) if counts is None else counts
    z = torch.randn(nodes, 128, generator=rng).relu() * 0.3
    scale = 1 / (nodes * SLOTS * words)
    asked = (torch.arange(SLOTS) < counts[:, None])[:, :, None]
    loss, nearest, hidden = torch.zeros(()), [], []
    for owner in range(owners):
        held = x[owner::owners]
        h = z + torch.randn(z.shape, generator=rng)
        for matrix, bias in inner:
            h = torch.relu(h @ matrix.T + bias)
        if dropout:
            h = h * (torch.rand(h.shape, generator=rng) > dropout) / (1 - dropout)
        generated = torch.tanh(h @ W.T + b).reshape(nodes, SLOTS, words)
        target = held[torch.cdist(generated.detach().flatten(0, 1), held).argmin(1)].reshape(generated.shape)
        loss = loss + scale * ((generated - target).square() * asked).sum()
        nearest.append(target)
        hidden.append(h)
    G, g = torch.autograd.grad(loss, (W, b))
    return Answer(
        G, g, W.detach(), b.detach(), scale, torch.cat(nearest), torch.cat(hidden), counts.repeat(owners)
    )


def _linear(outputs: int, inputs: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    bound = inputs**-0.5
    draw = (torch.rand(outputs, inputs + 1, generator=rng) * 2 - 1) * bound
    return draw[:, :-1].contiguous(), draw[:, -1].contiguous()


def read(said: Answer, **settings: object) -> BatchResult:
    return batch(said.G, said.g, said.W, said.b, said.scale, len(said.hidden), binary=True, **settings)


def exact(said: Answer, result: BatchResult) -> int:
    """How many nodes are right in every word of every slot asked for, and missing in every other."""
    true = torch.nn.functional.normalize(said.hidden, dim=1).numpy()
    right = set()
    for row in result.rows:
        node = int((true @ row.hidden).argmax())
        count = int(said.counts[node])
        if np.array_equal(row.features[:count], said.nearest[node, :count].numpy()) and np.all(
            np.isnan(row.features[count:])
        ):
            right.add(node)
    return len(right)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_one_node_is_exact_and_slots_not_asked_for_are_missing(count: int, dropout: float) -> None:
    said = answer(1, dropout=dropout, counts=torch.tensor([count]))
    x = single(said.G, said.g, said.W, said.b, said.scale)
    np.testing.assert_allclose(x[:count], said.nearest[0, :count].numpy(), atol=1e-4)
    assert np.isnan(x[count:]).all()
    assert exact(said, read(said)) == 1


@pytest.mark.parametrize(("nodes", "owners"), [(2, 1), (4, 1), (8, 1), (4, 2), (8, 2), (16, 1)])
@pytest.mark.parametrize("counts", ["mixed", "all"])
def test_a_batch_is_exact(nodes: int, owners: int, counts: str) -> None:
    said = answer(nodes, owners, counts=torch.full((nodes,), SLOTS) if counts == "all" else None)
    result = read(said)
    assert exact(said, result) == nodes * owners == result.rank == len(result.rows)
    assert result.complete and result.rejected == 0
    assert result.residual < 1e-5 and result.bias_residual < 1e-5
    # Distinct rows are counted by their bytes: no negative zeros.
    assert not any(np.signbit(row.features[~np.isnan(row.features)]).any() for row in result.rows)


def test_a_batch_without_dropout_is_exact() -> None:
    said = answer(4, dropout=0.0)
    result = read(said)
    assert exact(said, result) == 4
    assert all(0.3 < row.zeros < 0.7 for row in result.rows)


def test_chosen_columns_alone_find_a_batch() -> None:
    said = answer(6, counts=torch.full((6,), SLOTS))
    assert exact(said, read(said, search="columns")) == 6


def test_real_valued_features_are_read_too() -> None:
    x = torch.rand(40, 60, generator=torch.Generator().manual_seed(1)) * 2 - 1
    said = answer(4, x=x, counts=torch.full((4,), SLOTS))
    result = batch(said.G, said.g, said.W, said.b, said.scale, 4)
    best = [np.abs(said.nearest.numpy() - row.features).max((1, 2)).min() for row in result.rows]
    assert len(best) == 4 and max(best) < 1e-4


def test_a_fixed_point_grid_is_no_obstacle() -> None:
    said = answer(8, counts=torch.full((8,), SLOTS))
    coarse = {name: torch.round(getattr(said, name).double() * 2**24) / 2**24 for name in ("G", "g")}
    result = batch(**coarse, W=said.W, b=said.b, scale=said.scale, nodes=8, binary=True)
    assert exact(said, result) == 8


def test_noise_ten_times_the_gradient_ends_it() -> None:
    # The control: an attack that still scored here would not be reading the gradient. Noise of the size
    # of the entries does not end it: there are many entries, and a feature is one of two values.
    said = answer(4)
    rng = torch.Generator().manual_seed(3)
    noisy = [t + 10 * t.std() * torch.randn(t.shape, generator=rng) for t in (said.G, said.g)]
    result = batch(*noisy, said.W, said.b, said.scale, 4, seconds=1, binary=True)
    assert exact(said, result) == 0


def test_nodes_found_before_the_time_is_up_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    import secure_fedgraph.attacks.generator_gradients as module

    said = answer(8, counts=torch.tensor([5, 5, 4, 3, 2, 5, 5, 1]))
    monkeypatch.setattr(module, "sparse_rows", lambda *a, **k: sparse_rows(*a, **k)[:5])
    result = read(said)
    assert not result.complete and result.rank == 8
    assert exact(said, result) >= 4
    assert result.residual > 1e-2


def test_what_is_returned_is_an_activation_and_never_a_mixture() -> None:
    said = answer(8, counts=torch.full((8,), SLOTS))
    space = row_space(said.G.double(), 20)
    assert space.rank == 8 and space.gap > 1e4
    for search in ("contrast", "columns"):
        found = (sparse_rows(space, seconds=20, search=search) @ space.basis.T).float()
        near = (
            torch.nn.functional.normalize(found, dim=1) @ torch.nn.functional.normalize(said.hidden, dim=1).T
        )
        assert torch.all(near.max(1).values > 1 - 1e-5) and len(set(near.argmax(1).tolist())) == len(found)


def test_a_gradient_of_zeros_holds_nothing() -> None:
    said = answer(2)
    with pytest.raises(Blind):
        batch(said.G * 0, said.g * 0, said.W, said.b, said.scale, 2)


def test_an_unknown_search_is_refused() -> None:
    space = row_space(answer(2).G.double(), 2)
    with pytest.raises(BadInput, match="search"):
        sparse_rows(space, seconds=1, search="oracle")


@pytest.mark.slow
@pytest.mark.needs_data("planetoid")
@pytest.mark.parametrize(("nodes", "owners"), [(1, 1), (8, 2), (32, 1), (64, 1)])
def test_cora_at_the_papers_size(nodes: int, owners: int) -> None:
    from secure_fedgraph.graph.data.datasets import load

    x = (load("cora", allow_download=False).graph.x > 0).float()
    said = answer(
        nodes, owners, words=x.shape[1], width=2048, x=x, counts=torch.full((nodes,), SLOTS), seed=7
    )
    assert exact(said, read(said, seconds=120)) == nodes * owners
