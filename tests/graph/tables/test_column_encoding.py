"""What columns become: in range, counted, the same row for row, and quickly."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.graph.schema import Task
from secure_fedgraph.graph.tables.encoding import answers, encode, scale
from secure_fedgraph.graph.tables.schema import CategoryColumn, Column, Label, NumberColumn, YesNoColumn
from secure_fedgraph.graph.tables.table import Table

pa = pytest.importorskip("pyarrow")


def table(**columns: Any) -> Table:
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()
    }
    return Table("t.csv", arrays, np.arange(len(next(iter(arrays.values())))) + 2, ",")


@pytest.mark.parametrize(
    ("column", "value", "becomes"),
    [
        (NumberColumn(name="x", low=0, high=10), 5.0, 0.0),
        (NumberColumn(name="x", low=0, high=10), 11.0, 1.0),
        (NumberColumn(name="x", low=0, high=10), -1e300, -1.0),
        (NumberColumn(name="x", low=0, high=np.e - 1, scale="log"), np.sqrt(np.e) - 1, 0.0),
        (NumberColumn(name="x", low=-1, high=1, scale="log"), 0.0, 0.0),
        (NumberColumn(name="x", scale="quantiles", quantiles=(0, 1, 100)), 1.0, 0.0),
        (NumberColumn(name="x", scale="quantiles", quantiles=(0, 1, 100)), 50.5, 0.5),
        (NumberColumn(name="x", scale="quantiles", quantiles=(0, 1, 100)), 101.0, 1.0),
        (NumberColumn(name="x"), 1e6, 1.0),
        (NumberColumn(name="x"), -999.0, -0.5),
        (NumberColumn(name="x"), 1e9, 1.0),
    ],
)
def test_numbers(column: NumberColumn, value: float, becomes: float) -> None:
    made = encode(table(x=[value]), [column], constant=False)
    assert made.x[0, 0] == pytest.approx(becomes, abs=1e-6)


COLUMNS: list[Column] = [
    NumberColumn(name="a", low=-5, high=5, empty="indicator"),
    NumberColumn(name="b", empty=3.0),
    CategoryColumn(name="c", values=("u", "v"), empty="v"),
    YesNoColumn(name="d", empty="no"),
]
CELLS = st.tuples(
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.sampled_from(["u", "v", "w", "U"]),
    st.none() | st.sampled_from(["yes", "0", "T"]),
)


@given(st.lists(CELLS, min_size=2, max_size=6))
def test_a_row_becomes_the_same_alone_and_stays_in_range(rows: list[Any]) -> None:
    def made(some: list[Any]) -> Any:
        kinds = (pa.float64(), pa.float64(), pa.string(), pa.string())
        columns = {name: pa.array(list(cells), kind) for name, cells, kind in zip("abcd", zip(*some), kinds)}  # noqa: B905
        return encode(table(**columns), COLUMNS)

    together = made(rows)
    assert np.isfinite(together.x).all() and np.abs(together.x).max() <= 1 and (together.x[:, 0] == 1).all()
    assert np.array_equal(np.concatenate([made([row]).x for row in rows]), together.x)
    for fit in together.fits:
        assert fit.fits + fit.clipped + fit.unknown + fit.empty == len(rows)


def test_what_does_not_fit_is_counted() -> None:
    cells = table(a=[1.0, 9.0, None], b=[1.0, 1.0, 1.0], c=["u", "w", "U"], d=["yes", "no", None])
    made = encode(cells, COLUMNS)
    assert [(one.clipped, one.unknown, one.empty) for one in made.fits] == [
        (1, 0, 1),
        (0, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
    ]
    assert len(made.notes) == 3 and "'a'" not in made.notes[0]


@pytest.mark.parametrize(
    ("task", "label", "cells", "y"),
    [
        ("classes", Label(columns=("y",), classes=("-1", "1")), {"y": ["1", "-1", None]}, [1, 0, -1]),
        ("classes", Label(columns=("y",), classes=("-1", "1")), {"y": [1.0, -1.0, float("nan")]}, [1, 0, -1]),
        ("classes", Label(columns=("y",), classes=("b", "a")), {"y": ["a", "B", None]}, [1, 0, -1]),
        ("number", Label(columns=("y",), low=0, high=9), {"y": ["1.5", "11", None]}, [1.5, 9, None]),
        ("labels", Label(columns=("y", "z")), {"y": ["yes", None], "z": [0, 1]}, [[1, 0], [None, 1]]),
    ],
)
def test_answers(task: str, label: Label, cells: dict[str, Any], y: list[Any]) -> None:
    made, _ = answers(table(**cells), label, Task(task))
    assert made.dtype == (np.int64 if task == "classes" else np.float32)
    assert np.array_equal(made, np.array(y, dtype=float), equal_nan=True)


def test_thirty_thousand_rows_take_no_time() -> None:
    rng = np.random.default_rng(0)
    rows = 30_000
    words = pa.array(rng.choice(["a", "b", "c"], rows).tolist())
    cells = {f"n{i}": pa.array([f"{one:.3f}" for one in rng.normal(size=rows)]) for i in range(10)}
    columns: list[Column] = [NumberColumn(name=name, low=-3, high=3) for name in cells]
    columns += [CategoryColumn(name=f"w{i}", values=("a", "b", "c")) for i in range(5)]
    given_table = table(**cells, **{f"w{i}": words for i in range(5)})
    before = time.process_time()
    made = encode(given_table, columns)
    assert made.x.shape == (rows, 1 + 10 + 20) and time.process_time() - before < 2


def test_a_scale_clips_what_it_counts() -> None:
    made, clipped = scale(np.array([np.nan, -1.0, 2.0]), NumberColumn(name="x", low=0, high=1))
    assert np.isnan(made[0]) and made[1:].tolist() == [-1, 1] and clipped.tolist() == [False, True, True]
