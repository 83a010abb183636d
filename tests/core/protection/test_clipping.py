"""Clip: literal numbers, the bound after rounding, the sensitivity it hands on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from parties import NAMES, scope

from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, Incompatible
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.contracts import BindContext, Sensitivity
from secure_fedgraph.core.protection.gaussian import Clip


def context(relation: str) -> BindContext:
    return BindContext(Channel("update", Reveal.SUM), NAMES, relation)


def test_a_long_row_is_scaled_and_a_short_one_is_not():
    # ||(3, 4)|| = 5, so clipping to 1 gives (0.6, 0.8), less one part in 2**20
    out = Clip(1.0).apply(np.array([[3.0, 4.0], [0.3, 0.4]], dtype=np.float32), scope())
    assert out.dtype == np.float32
    assert out[0] == pytest.approx([0.6, 0.8], rel=2e-6)
    assert out[1].tolist() == np.array([0.3, 0.4], dtype=np.float32).tolist()


def test_the_bound_holds_in_the_numbers_that_leave():
    rows = np.random.default_rng(0).normal(size=(2000, 37)).astype(np.float32)
    norms = np.linalg.norm(Clip(0.1).apply(rows, scope()).astype(np.float64), axis=1)
    assert norms.max() <= 0.1
    assert norms.min() > 0.0999


def test_a_row_that_rounds_up_to_above_the_norm_is_clipped():
    # in double precision the row is within the norm; the nearest float32 above it is not
    row = np.array([[1.0 + 2.0**-24 + 2.0**-30]])
    out = Clip(float(row[0, 0])).apply(row, scope())
    assert float(out[0, 0]) <= row[0, 0]


def test_zeros_and_giants():
    out = Clip(1.0).apply(np.array([[0.0, 0.0], [3e38, 3e38]], dtype=np.float32), scope())
    assert out[0].tolist() == [0, 0]
    assert np.linalg.norm(out[1].astype(np.float64)) == pytest.approx(1.0, rel=2e-6)


@pytest.mark.parametrize(("relation", "moved"), [("zero-out", 2.0), ("replace", 4.0)])
def test_sensitivity_by_relation(relation, moved):
    assert Clip(2.0).bind(Sensitivity(), context(relation))[1] == Sensitivity(moved, Unit.CLIENT)


@pytest.mark.parametrize("unit", [Unit.NODE, Unit.EDGE, Unit.GRAPH])
def test_whose_data_is_bounded(unit):
    """Rows of nodes recur: clipped one by one, they bound nobody; the whole upload is the client's."""
    rows = BindContext(Channel("egos", Reveal.SUM, unit), NAMES, "zero-out")
    assert Clip(2.0).bind(Sensitivity(), rows)[1] == Sensitivity(2.0, None)
    assert Clip(2.0, whole=True).bind(Sensitivity(), rows)[1] == Sensitivity(2.0, Unit.CLIENT)
    assert Clip(2.0, whole=True).bind(Sensitivity(), context("replace"))[1] == Sensitivity(4.0, Unit.CLIENT)


def test_the_whole_is_scaled_as_one():
    # ||((3, 4), (0, 12))|| = 13
    rows = np.array([[3.0, 4.0], [0.0, 12.0]], dtype=np.float32)
    out = Clip(1.3, whole=True).apply(rows, scope())
    assert out.shape == rows.shape
    assert out == pytest.approx(rows / 10, rel=2e-6)
    assert Clip(13.1, whole=True).apply(rows, scope()).tolist() == rows.tolist()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_clip(shape):
    for whole in (False, True):
        assert Clip(1.0, whole=whole).apply(np.zeros(shape, dtype=np.float32), scope()).shape == shape


def test_behind_noise_it_does_not_bind():
    """A zeroed row that carries noise is not at zero: clipping it again bounds nothing that was promised."""
    with pytest.raises(Incompatible, match="put Clip before the noise"):
        Clip(2.0).bind(Sensitivity(1.0, noise_added_by="client"), context("zero-out"))


@pytest.mark.parametrize("norm", [0.0, -1.0, math.inf, math.nan])
def test_a_norm_that_bounds_nothing(norm):
    with pytest.raises(BadInput, match="--norm"):
        Clip(norm)
