"""Sums over trees of units: each unit's row is clipped and its places are checked before it is added up."""

from __future__ import annotations

import logging
from itertools import accumulate

import numpy as np

from secure_fedgraph.errors import BadInput
from secure_fedgraph.privacy.pooling import ROUNDING_MARGIN, clipped
from secure_fedgraph.protocol.channel import UnitContributionTrees
from secure_fedgraph.protocol.guarantee import Unit
from secure_fedgraph.protocol.upload import ContributionTrees, Layout

_LOG = logging.getLogger("secure_fedgraph.upload")


def tree_sums(
    trees: ContributionTrees, contribution: UnitContributionTrees, unit: Unit, grid: float = 0.0
) -> tuple[Layout, np.ndarray]:
    """The sums ``[batches * positions, width]`` (float64), and their layout.

    Args:
        grid: a step that each unit's row is rounded to, towards zero, before anything is added up.

    Guarantees:
        - zeroing one unit on the table, with all units below its places, moves the whole matrix by
          at most ``sqrt(contribution.rows) * contribution.norm`` in L2, whatever the other units are;
          replacing it by twice that.

    Raises:
        BadInput: for a table with a unit in more places than was declared. None is removed here: which one
            would depend on the other units, and change when one is zeroed.
    """
    layout, matrix, places = trees.packed(unit)
    check_table(places, contribution)
    short = clipped(matrix, contribution.norm).astype(np.float64)
    if grid:
        short = np.trunc(short * (ROUNDING_MARGIN / grid))
    ground = np.concatenate([short, np.zeros((1, short.shape[1]))])  # -1 is its last row
    cells = places.transpose(0, 2, 1).reshape(-1, places.shape[1])
    sums = np.zeros((len(cells), short.shape[1]))
    for tree in cells.T:
        sums += ground[tree]
    return layout, sums * (grid or 1.0)


def check_table(places: np.ndarray, contribution: UnitContributionTrees) -> None:
    """Checks that a table of places keeps to what was declared.

    Raises:
        BadInput: where it does not.
    """
    sizes = list(accumulate(contribution.fanout, lambda size, children: size * children, initial=1))
    if places.shape != (contribution.batches, contribution.trees, sum(sizes)):
        raise BadInput(
            f"{list(places.shape)} places, where {contribution.batches} batches of {contribution.trees} "
            f"trees of {sum(sizes)} positions were declared"
        )
    occupied = places >= 0
    if not occupied[:, :, parents(contribution.fanout)][occupied[:, :, 1:]].all():
        raise BadInput("a table of trees has a place below an empty one, where zeroing would not reach it")
    if contribution.filled and occupied.sum(axis=2).max() > contribution.filled:
        raise BadInput(f"a table of trees has one that fills more than {contribution.filled} places")
    if _most_often(places.reshape(len(places), -1)) > 1:
        raise BadInput("a table of trees lets one unit stand twice in a batch")
    for level, part in enumerate(np.split(places, np.cumsum(sizes)[:-1], axis=2)):
        if _most_often(part.reshape(1, -1)) > contribution.most[level]:
            raise BadInput(
                f"a table of trees lets one unit stand more than {contribution.most[level]} times at level "
                f"{level}"
            )


def parents(fanout: tuple[int, ...]) -> np.ndarray:
    """The parent of each position of a tree but the first.

    >>> parents((2, 2)).tolist()
    [0, 0, 1, 1, 2, 2]
    """
    levels, start, size = [], 0, 1
    for children in fanout:
        levels.append(np.repeat(np.arange(start, start + size), children))
        start, size = start + size, size * children
    return np.concatenate(levels)


def _most_often(rows: np.ndarray) -> int:
    """How often a unit stands in one row at most; empty places do not count."""
    units = int(rows.max(initial=0)) + 1
    keys = (np.arange(len(rows))[:, None] * units + rows)[rows >= 0]
    return int(np.bincount(keys).max(initial=0))
