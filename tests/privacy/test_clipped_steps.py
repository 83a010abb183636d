"""The sum of clipped gradients of noisy steps: bounded, and each record's part by itself."""

from __future__ import annotations

from typing import Any

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


def factors(
    records: int, few: bool, seed: int = 1
) -> dict[str, torch.Tensor | tuple[torch.Tensor, torch.Tensor]]:
    """Of two matrices, the first by its factors; each record's rows have few columns, or all."""
    drawn = torch.Generator().manual_seed(seed)
    rows = torch.randn(records, 6, 40, generator=drawn)
    if few:
        rows *= (torch.rand(records, 1, 40, generator=drawn) < 0.2).float()
    first = torch.randn(records, 6, 8, generator=drawn), rows
    return {"first": first, "second": torch.randn(records, 3, 5, generator=drawn)}


def chosen(given: dict[str, Any], rows: list[int]) -> dict[str, Any]:
    return {k: tuple(f[rows] for f in g) if isinstance(g, tuple) else g[rows] for k, g in given.items()}


@pytest.mark.parametrize("few", [True, False])
def test_factors_give_what_their_products_give(few: bool) -> None:
    given = factors(8, few)
    back, rows = given["first"]
    dense = {"first": torch.bmm(back.transpose(1, 2), rows), "second": given["second"]}
    found, wanted = (_whole_steps(g, PARAMETERS, CLIP, GRID) for g in (given, dense))
    assert np.abs(found - wanted).max() <= 1  # the last bit of a product may round to the other side
    assert (found != wanted).mean() < 0.05


@pytest.mark.parametrize("few", [True, False])
def test_a_records_part_by_factors_is_the_same_whichever_others_are_there(few: bool) -> None:
    given = factors(6, few)
    alone = [_whole_steps(chosen(given, [i]), PARAMETERS, CLIP, GRID) for i in range(6)]
    for kept in ([0, 1, 2, 3, 4, 5], [5, 2], [3]):
        of_some = _whole_steps(chosen(given, kept), PARAMETERS, CLIP, GRID)
        assert np.array_equal(of_some, sum(alone[i] for i in kept))


@pytest.mark.parametrize("length", [0.001, 1.0, 40.0, 1e25, float("inf"), float("nan")])
@pytest.mark.parametrize("few", [True, False])
def test_no_record_by_factors_is_longer_than_the_clip(length: float, few: bool) -> None:
    given = factors(1, few)
    back, rows = given["first"]
    for grown in ((back * length, rows), (back, rows * length), (back * length, rows * length)):
        drawn = {"first": grown, "second": given["second"]}
        norm = np.linalg.norm(_whole_steps(drawn, PARAMETERS, CLIP, GRID) * GRID)
        assert norm <= CLIP
        if length >= 1:
            assert norm > 0.9 * CLIP - 335**0.5 * GRID
