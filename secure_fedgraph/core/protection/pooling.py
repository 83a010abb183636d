"""Sums over units: each unit's part is clipped and limited to so many rows before it is added up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from secure_fedgraph.core.channel import UnitContribution
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.upload import ContributionRows, ContributionSample, Layout

ROUNDING_MARGIN = 1 - 2.0**-40
"""A factor below 1: the rounding of a quotient cannot then lengthen a row."""


_BLOCK = 8192
"""Columns that are worked on at once: few enough to stay in the processor's cache."""


def clipped(matrix: np.ndarray, norm: float) -> np.ndarray:
    """Rows (float32) of an L2 norm of at most ``norm``, also after rounding; shorter ones unchanged."""
    matrix = matrix.astype(np.float32, copy=False)  # before the norm: rounding could lift a row above it
    factors = _factors(matrix, norm)
    return matrix.copy() if factors is None else (matrix * factors).astype(np.float32)


def _factors(matrix: np.ndarray, norm: float) -> np.ndarray | None:
    """What clips each row of float32, ``[rows, 1]`` (float64); None where every row is short enough."""
    squares = sum(
        (np.square(block, dtype=np.float64).sum(axis=1) for block in _blocks(matrix)), np.zeros(len(matrix))
    )
    norms = np.sqrt(squares)[:, None]
    # the factor's last bits must not lift a row above the norm when it is rounded to float32
    factors = np.where(norms > norm, norm * (1 - 2.0**-20) / np.maximum(norms, 1e-300), 1.0)
    return factors if (factors < 1).any() else None


def _blocks(matrix: np.ndarray) -> Iterator[np.ndarray]:
    return (matrix[:, start : start + _BLOCK] for start in range(0, matrix.shape[1], _BLOCK))


def first(places: np.ndarray, most: int) -> np.ndarray:
    """Each unit's first ``most`` places, in the public order of the rows, which no other unit changes."""
    return places & (np.cumsum(places, axis=1) <= most)


def pooled(
    parts: ContributionRows, contribution: UnitContribution, unit: Unit, grid: float = 0.0
) -> tuple[Layout, np.ndarray]:
    """The sums ``[rows, width]`` (float64), and their layout.

    Args:
        grid: a step that each part is rounded to, towards zero, before anything is added up: the sums are
            whole steps then, and rounding moves none of them by more than the part itself.

    Guarantees:
        - zeroing one unit, or leaving it out, moves the whole matrix by at most
          ``sqrt(contribution.rows) * contribution.norm`` in L2, whatever the other units are; replacing it
          by twice that.
    """
    layout, matrix, places = parts.packed(unit)
    # float64: in float32 the rounding of long sums would move by more than a short unit does
    short = clipped(matrix, contribution.norm).astype(np.float64)
    if grid:
        short = np.trunc(short * (ROUNDING_MARGIN / grid))
    rows = first(places, contribution.rows).T.astype(np.float64) @ short
    return layout, rows * (grid or 1.0)  # after the sum, which is exact in whole steps


def sampled_sum(
    parts: ContributionSample, contribution: UnitContribution, unit: Unit, grid: float = 0.0
) -> tuple[Layout, np.ndarray]:
    """The sum ``[1, width]`` (float64) of the parts of units that coins took, and its layout.

    Args:
        grid: as for :func:`pooled`.

    Guarantees:
        - zeroing one unit, or leaving it out, moves the sum by at most ``contribution.norm`` in L2, whatever
          the other units are; replacing it by twice that.
    """
    layout, matrix = parts.packed(unit)
    factors = _factors(matrix, contribution.norm)
    sums = []
    for block in _blocks(matrix):  # as clipped, rounded and added up in one piece, without copies of it
        short = block if factors is None else (block * factors).astype(np.float32)
        short = short.astype(np.float64)
        if grid:
            short *= ROUNDING_MARGIN / grid
            np.trunc(short, out=short)
        sums.append(short.sum(axis=0))
    return layout, np.concatenate([np.zeros(0), *sums])[None] * (grid or 1.0)


def l2_sensitivity(contribution: UnitContribution, relation: str) -> float:
    """The L2 sensitivity of :func:`pooled`, and of sums over trees, under a neighbouring relation."""
    if relation == "replace":
        return contribution.replaced
    return contribution.zeroed
