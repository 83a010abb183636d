"""The sum of clipped gradients of noisy steps: bounded, and each record's part by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from secure_fedgraph.privacy.dp_sgd import CACHED, _whole_steps

WIDTH, CLIP, GRID = CACHED // 3, 1.0, 1e-4
PARAMETERS = {"first": None, "second": None}
KINDS = ("multiplied out", "factors of few columns", "factors of all columns")


def gradients(kind: str, records: int) -> dict[str, Any]:
    """Of two parameters: so wide that three records are clipped at a time; or the first by its factors."""
    drawn = torch.Generator().manual_seed(1)
    if kind == KINDS[0]:
        whole = torch.randn(records, WIDTH, generator=drawn)
        return {"first": whole[:, :100].reshape(records, 10, 10), "second": whole[:, 100:]}
    rows = torch.randn(records, 6, 40, generator=drawn)
    if kind == KINDS[1]:
        rows *= (torch.rand(records, 1, 40, generator=drawn) < 0.2).float()
    first = torch.randn(records, 6, 8, generator=drawn), rows
    return {"first": first, "second": torch.randn(records, 3, 5, generator=drawn)}


def chosen(given: dict[str, Any], rows: list[int]) -> dict[str, Any]:
    return {k: tuple(f[rows] for f in g) if isinstance(g, tuple) else g[rows] for k, g in given.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_records_part_is_the_same_whichever_others_are_in_the_batch(kind: str) -> None:
    every = gradients(kind, 8)
    alone = [_whole_steps(chosen(every, [i]), PARAMETERS, CLIP, GRID) for i in range(8)]
    for kept in ([0, 1, 2, 3, 4, 5, 6, 7], [7, 2], [5, 0, 1, 6, 3], [3]):
        of_some = _whole_steps(chosen(every, kept), PARAMETERS, CLIP, GRID)
        assert np.array_equal(of_some, sum(alone[i] for i in kept))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_factors_give_what_their_products_give(kind: str) -> None:
    given = gradients(kind, 8)
    back, rows = given["first"]
    dense = {"first": torch.bmm(back.transpose(1, 2), rows), "second": given["second"]}
    found, wanted = (_whole_steps(g, PARAMETERS, CLIP, GRID) for g in (given, dense))
    assert np.abs(found - wanted).max() <= 1  # the last bit of a product may round to the other side
    assert (found != wanted).mean() < 0.05


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [0.001, 0.3, 1.0, 1.0000001, 40.0, 1e25, float("inf"), float("nan")])
def test_no_record_is_longer_than_the_clip(length: float, kind: str) -> None:
    given = gradients(kind, 1)
    first, width = given["first"], WIDTH
    if isinstance(first, tuple):
        (back, rows), width = first, 335
        grown = [(back * length, rows), (back, rows * length), (back * length, rows * length)]
        every = [{**given, "first": one} for one in grown]
    else:
        every = [{name: value * length for name, value in given.items()}]
    for drawn in every:
        norm = np.linalg.norm(_whole_steps(drawn, PARAMETERS, CLIP, GRID) * GRID)
        assert norm <= CLIP
        if 1.0 <= length < float("inf"):
            assert norm > 0.9 * CLIP - width**0.5 * GRID
