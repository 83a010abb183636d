"""Ranges from noised counts: whatever the noise makes of them, cut points increase."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.tables.encoding import scale
from secure_fedgraph.graph.tables.ranges import CELLS, cell_of, grid, quantiles_of, with_ranges
from secure_fedgraph.graph.tables.schema import DateColumn, Label, Links, NumberColumn, TableSchema


@given(st.floats(allow_nan=False))
def test_a_value_lies_in_its_cell(value: float) -> None:
    cell = int(cell_of(np.array([value]))[0])
    edges = grid()
    assert 0 <= cell < CELLS
    assert edges[cell] <= value or cell == 0
    assert value < edges[cell + 1] or cell == CELLS - 1


@given(st.integers(0, 2**32 - 1), st.floats(0, 1e4), st.integers(2, 50))
def test_cut_points_increase_whatever_the_counts(seed: int, noise: float, cuts: int) -> None:
    counts = np.random.default_rng(seed).normal(scale=max(noise, 1), size=CELLS)
    made = quantiles_of(counts, cuts, noise)
    assert len(made) >= 2 and np.isfinite(made).all() and (np.diff(made) > 0).all()


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_they_are_near_the_quantiles(noise: float) -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(8, 1, 20_000)
    counts = np.bincount(cell_of(values), minlength=CELLS) + rng.normal(scale=noise, size=CELLS)
    made = np.array(quantiles_of(counts, 11, noise))
    true = np.quantile(values, np.linspace(0, 1, 11))
    assert np.allclose(made[1:-1], true[1:-1], rtol=0.1)
    spread, clipped = scale(values, NumberColumn(name="x", scale="quantiles", quantiles=tuple(made)))
    assert clipped.mean() < 0.01 and abs(spread.mean()) < 0.05 and 0.5 < spread.std() < 0.65


def test_noise_alone_makes_no_range_of_it() -> None:
    assert quantiles_of(np.random.default_rng(0).normal(scale=10, size=CELLS), 5, 10.0) == (-1.0, 1.0)


@pytest.mark.parametrize("counts", [np.zeros(3), np.full(CELLS, np.nan), np.full(CELLS, np.inf)])
def test_counts_that_are_none(counts: np.ndarray) -> None:
    with pytest.raises(BadInput, match="counts"):
        quantiles_of(counts)


def test_a_schema_is_completed() -> None:
    draft = TableSchema(
        label=Label(columns=("y",), classes=("a", "b")),
        columns=(NumberColumn(name="n"), NumberColumn(name="m", low=0, high=1), DateColumn(name="d")),
        links=Links(columns=(NumberColumn(name="amount"),)),
    )
    assert draft.incomplete == ("n", "d", "amount")
    made = with_ranges(draft, {"n": (0, 1, 5), "d": (0, 50, 100), "amount": (1, 2)})
    assert made.incomplete == () and made.columns[1] == draft.columns[1]
    number, date = made.columns[0], made.columns[2]
    assert isinstance(number, NumberColumn) and (number.scale, number.quantiles) == ("quantiles", (0, 1, 5))
    assert isinstance(date, DateColumn) and (date.low, date.high) == (0, 100)
    for odd, key in (({"m": (0, 1)}, "'m'"), ({"n": (1, 1)}, "'n'"), ({"n": (1,)}, "'n'")):
        with pytest.raises(BadInput, match=key):
            with_ranges(draft, odd)
