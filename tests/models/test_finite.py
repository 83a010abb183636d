"""Our names for PyTorch's optimisers: same steps, same states."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from secure_fedgraph.models import finite


def trained(kind: Any, settings: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
    """A parameter after three steps, the last two by an optimiser that goes on from the first one's state."""
    weights = torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4))

    def loss() -> torch.Tensor:
        value = (weights**3 - weights).square().sum()
        optimizer.zero_grad()
        value.backward()
        return value

    optimizer = kind([weights], **settings)
    optimizer.step(loss)
    state = optimizer.state_dict()
    optimizer = kind([weights], **settings)
    optimizer.load_state_dict(state)
    optimizer.step(loss)
    optimizer.step(loss)
    return weights.detach(), optimizer.state_dict()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Adam", {"lr": 0.1, "weight_decay": 0.01}),
        ("Adam", {"lr": 0.1, "fused": True}),
        ("SGD", {"lr": 0.1, "momentum": 0.9}),
        ("LBFGS", {"max_iter": 3, "line_search_fn": "strong_wolfe"}),
    ],
)
def test_bit_for_bit_as_torch(name: str, settings: dict[str, Any]) -> None:
    ours, state = trained(getattr(finite, name), settings)
    theirs, expected = trained(getattr(torch.optim, name), settings)
    assert torch.equal(ours, theirs)
    assert str(state) == str(expected)
