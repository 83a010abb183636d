"""Ranges of numbers that no owner shows: counts on a fixed public grid, cut points from their noised sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.tables.schema import Column, DateColumn, NumberColumn, TableSchema

CELLS = 512
"""Cells of the grid."""
REACH = 1e12
"""The grid covers numbers from ``-REACH`` to ``REACH``; what is beyond counts in its last cells."""
FINEST = 1e-3
"""The width of the cells around 0; farther out they grow by a constant factor."""


@cache
def _edges() -> np.ndarray:
    ends = np.arcsinh(REACH / FINEST)
    edges = FINEST * np.sinh(np.linspace(-ends, ends, CELLS + 1))
    edges[[0, CELLS // 2, CELLS]] = -REACH, 0.0, REACH  # exactly
    edges.setflags(write=False)
    return edges


def grid() -> np.ndarray:
    """The edges of the grid's cells, ``[CELLS + 1]`` in increasing order: public, and the same for all data.

    >>> float(grid()[0]), float(grid()[-1]), len(grid()), bool((np.diff(grid()) > 0).all())
    (-1000000000000.0, 1000000000000.0, 513, True)
    """
    return _edges()


def cell_of(values: np.ndarray) -> np.ndarray:
    """The number of each value's cell, from 0; -1 where it is NaN. One value is in one cell.

    >>> cells = cell_of(np.array([-1e300, 0.0, 1e300, float("nan")]))
    >>> cells.tolist()
    [0, 256, 511, -1]
    """
    inner = np.searchsorted(_edges()[1:-1], values, side="right")
    return np.where(np.isnan(values), -1, inner)


def quantiles_of(counts: np.ndarray, cuts: int = 21, noise: float = 0.0) -> tuple[float, ...]:
    """Cut points between which about as many values lie, from counts per cell that may be noised.

    It is post-processing: no value is looked at. Cells whose count stays below four standard deviations of
    the noise make no range: beyond the first and the last cell above that, all cells count as empty.

    Guarantees:
        - two cut points or more, finite, each above the one before, whatever the counts are.

    Args:
        counts: ``[CELLS]``, negative where noise made them so.
        cuts: how many cut points are wanted; there may be fewer.
        noise: standard deviation of the noise on each count.

    Raises:
        BadInput: for another number of counts, and for counts that are not finite.

    >>> counts = np.bincount(cell_of(np.linspace(10, 20, 1000)), minlength=CELLS)
    >>> cut = quantiles_of(counts, 3)
    >>> 8.5 < cut[0] <= 10 and 14 < cut[1] < 16 and 20 <= cut[2] < 23
    True
    """
    given = np.asarray(counts, dtype=np.float64)
    if given.shape != (CELLS,) or not np.isfinite(given).all():
        raise BadInput(f"counts has shape {given.shape}: give {CELLS} finite counts, one a cell")
    held = np.where(given > 4 * noise, given, 0.0)
    held = np.maximum(held, 0.0)
    edges = _edges()
    if not held.any():  # nothing stands out of the noise
        return (-1.0, 1.0)
    first, last = np.flatnonzero(held)[[0, -1]]
    inside = np.maximum(given[first : last + 1], 0.0)  # small cells between large ones count
    total = np.concatenate([[0.0], np.cumsum(inside)])
    levels = np.linspace(0, total[-1], max(cuts, 2))
    found = np.interp(levels, total + np.arange(len(total)) * 1e-9 * total[-1], edges[first : last + 2])
    found[[0, -1]] = edges[first], edges[last + 1]
    points = [float(found[0])]
    for one in found[1:]:
        if one > points[-1]:
            points.append(float(one))
    return tuple(points)


def with_ranges(schema: TableSchema, quantiles: Mapping[str, Sequence[float]]) -> TableSchema:
    """The schema with ranges for numbers and dates that lacked one.

    Args:
        schema: which names columns that still need a range (:attr:`~TableSchema.incomplete`).
        quantiles: such a column -> cut points in increasing order. Dates get the first and the last.

    Raises:
        BadInput: for a column that is none of them, and for cut points that are not increasing.
    """
    unknown = sorted(set(quantiles) - set(schema.incomplete))
    if unknown:
        raise BadInput(f"column {unknown[0]!r} needs no range: give those of {', '.join(schema.incomplete)}")
    for name, cuts in quantiles.items():
        finite = all(np.isfinite(one) for one in cuts)
        if len(cuts) < 2 or not finite or any(a >= b for a, b in pairwise(cuts)):
            raise BadInput(f"column {name!r}: give two cut points or more, in increasing order")

    def ranged(column: Column) -> Column:
        if not isinstance(column, NumberColumn | DateColumn) or column.name not in quantiles:
            return column
        cuts = [float(one) for one in quantiles[column.name]]
        ends: dict[str, object] = {"low": cuts[0], "high": cuts[-1]}
        if isinstance(column, NumberColumn) and len(cuts) > 2:
            ends |= {"scale": "quantiles", "quantiles": tuple(cuts)}
        return column.model_copy(update=ends)

    links = schema.links
    if links is not None:
        links = links.model_copy(update={"columns": tuple(ranged(one) for one in links.columns)})
    columns = tuple(ranged(one) for one in schema.columns)
    return TableSchema.model_validate(
        schema.model_copy(update={"columns": columns, "links": links}).model_dump()
    )
