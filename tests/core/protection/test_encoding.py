"""Fixed point: the step it chooses, and that nothing wraps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from parties import scope

from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, Incompatible
from secure_fedgraph.core.protection.contracts import BindContext, Sensitivity
from secure_fedgraph.core.protection.fixed_point import PIECE, FixedPoint


def fitted(limit: float, clients: int, ring: int) -> FixedPoint:
    names = tuple(f"c{i}" for i in range(clients))
    stage, after = FixedPoint(limit).bind(
        Sensitivity(1.0), BindContext(Channel("update", Reveal.SUM), names, "zero-out", ring)
    )
    assert after == Sensitivity()  # rounding moves a row by an unknown amount: no bound is claimed after it
    assert isinstance(stage, FixedPoint)
    return stage


@pytest.mark.parametrize(
    ("limit", "clients", "ring", "step"),
    [
        # ring / 2 / clients - 1 grid numbers on either side: 2**31/3 - 1 = 715827881.7; 8 over that is
        # 1.118e-8, and the next power of two is 2**-26 = 1.49e-8
        (8.0, 3, 2**32, 2.0**-26),
        # 2**30 - 1: 8 / (2**30 - 1) is just above 2**-27
        (8.0, 2, 2**32, 2.0**-26),
        (8.0, 3, 2**30, 2.0**-24),
        (1.0, 100, 2**32, 2.0**-24),
    ],
)
def test_step(limit, clients, ring, step):
    stage = fitted(limit, clients, ring)
    assert stage.step == step
    assert stage.public() == {"grid": step}
    assert clients * (limit / step + 1) < ring / 2  # everybody at the limit does not wrap
    assert clients * (limit / (step / 2) + 1) >= ring / 2  # and half the step would


def test_rounds_to_the_nearest_and_back():
    stage = fitted(8.0, 3, 2**32)
    values = np.array([[1.0, -1.0, 2.0**-27 * 1.01, -(2.0**-28), 8.0, -8.0]])
    grid = stage.apply(values, scope())
    assert grid.dtype == np.int32
    assert grid.tolist() == [[2**26, -(2**26), 1, 0, 2**29, -(2**29)]]
    assert stage.undo(grid, scope()).tolist() == [[1.0, -1.0, 2.0**-26, 0.0, 8.0, -8.0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("limit", [8.0, 8.1, 0.3])
def test_values_beyond_the_limit_are_cut_and_counted_once(limit, dtype):
    stage = fitted(limit, 3, 2**32)
    beyond = np.array([[8.5, -1e30, np.inf, -np.inf, 0.25, np.nan]], dtype=dtype)
    kept = stage.undo(stage.apply(beyond, scope()), scope())
    assert kept[0].tolist() == pytest.approx([limit, -limit, limit, -limit, 0.25, 0.0], abs=1e-6)
    assert abs(stage.apply(beyond, scope())).max() * stage.step <= limit  # also where float32 rounds it up
    assert stage.tally(beyond).tolist() == [1]
    assert stage.tally(np.array([[0.25, -0.25]], dtype=dtype)).tolist() == [0]
    assert stage.tally(np.zeros((0, 3), dtype=dtype)).tolist() == [0]


def test_the_matrix_is_not_written_to():
    values = np.array([[9.0, 1.0]], dtype=np.float32)
    fitted(8.0, 3, 2**32).apply(values, scope())
    assert values.tolist() == [[9.0, 1.0]]


def test_rings_that_do_not_serve():
    with pytest.raises(Incompatible, match="needs a carrier that adds in a ring"):
        fitted(8.0, 3, 0)
    with pytest.raises(Incompatible, match="4 clients do not fit a ring of 8 values"):
        fitted(8.0, 4, 8)
    with pytest.raises(Incompatible, match="less than 8 bits each at limit 8"):
        fitted(8.0, 300, 2**16)


@pytest.mark.parametrize("limit", [0.0, -8.0, math.inf, math.nan])
def test_limits_that_are_none(limit):
    with pytest.raises(BadInput, match=r"protection\.limit"):
        FixedPoint(limit)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 3])
def test_several_pieces_are_rounded_as_one(dtype, rows):
    stage, width = fitted(8.0, 3, 2**32), PIECE + 7
    values = np.random.default_rng(0).uniform(-9, 9, (width, rows)).astype(dtype).T  # in no order of its own
    values[:, 0], values[:, PIECE + 1], values[:, -1] = np.nan, np.inf, -0.0
    whole = np.nan_to_num(np.clip(values, -8, 8)) / dtype(stage.step)
    assert np.array_equal(stage.apply(values, scope()), np.rint(whole).astype(np.int32))
    assert stage.apply(values[:, :0], scope()).shape == (rows, 0)
