"""The sum of clipped gradients of noisy steps: bounded, and each record's part by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secure_fedgraph.privacy.dp_sgd import CACHED, _whole_steps

WIDTH, CLIP, GRID = CACHED // 3, 1.0, 1e-4
PARAMETERS = {"first": None, "second": None}


def gradients(records: int) -> dict[str, torch.Tensor]:
    """Of two parameters, so wide that three records are clipped at a time."""
    drawn = torch.randn(records, WIDTH, generator=torch.Generator().manual_seed(0))
    return {"first": drawn[:, :100].reshape(records, 10, 10), "second": drawn[:, 100:]}


def test_a_records_part_is_the_same_whichever_others_are_in_the_batch() -> None:
    every = gradients(8)
    alone = [
        _whole_steps({k: v[i : i + 1] for k, v in every.items()}, PARAMETERS, CLIP, GRID) for i in range(8)
    ]
    for kept in ([0, 1, 2, 3, 4, 5, 6, 7], [7, 2], [5, 0, 1, 6, 3]):
        of_some = _whole_steps({k: v[kept] for k, v in every.items()}, PARAMETERS, CLIP, GRID)
        assert np.array_equal(of_some, sum(alone[i] for i in kept))


@pytest.mark.parametrize("length", [0.005, 0.3, 1.0, 1.0000001, 40.0, 1e30, float("inf"), float("nan")])
def test_no_record_is_longer_than_the_clip(length: float) -> None:
    drawn = {k: v * length for k, v in gradients(1).items()}
    norm = np.linalg.norm(_whole_steps(drawn, PARAMETERS, CLIP, GRID) * GRID)
    assert norm <= CLIP
    if 1.0 <= length < float("inf"):
        assert norm > 0.9 * CLIP - WIDTH**0.5 * GRID
