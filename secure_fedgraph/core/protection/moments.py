"""Moments of records: each record is clipped and rounded before any product of its values is added up."""

from __future__ import annotations

import math

import numpy as np
import torch

from secure_fedgraph.core.channel import UnitContributionMoments
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.pooling import ROUNDING_MARGIN, clipped
from secure_fedgraph.core.upload import OFF, ON, ContributionMoments, Layout


def moment_sums(
    parts: ContributionMoments, contribution: UnitContributionMoments, unit: Unit, grid: float = 0.0
) -> tuple[Layout, np.ndarray]:
    """The sums ``[1, width]`` (float64), and their layout.

    Args:
        grid: a step of the sums. Records are rounded to steps whose products are whole multiples of it, so
            the sums are whole steps, and rounding makes no record longer.

    Guarantees:
        - zeroing one record, or removing it, moves the sums by at most ``contribution.norm`` in L2, whatever
          the other records are; replacing it by twice that;
        - with ``contribution.readers``, of the records at one node no more than so many are added up.
    """
    layout, records, targets = parts.packed(unit, contribution.second)
    if contribution.readers:
        kept = _first(parts.ends, len(records), contribution.readers)
        records, targets = records[kept], targets[kept]
    z, t = clipped(records, 1.0).astype(np.float64), clipped(targets, contribution.targets).astype(np.float64)
    step = math.sqrt(grid * ON * contribution.records)
    if grid:
        z, t = _whole(z, step, 1.0), _whole(t, step / ON, contribution.targets)
    sums = [(z.T @ t).reshape(-1) * (grid or 1 / contribution.records)]
    if contribution.second:
        above = np.triu_indices(z.shape[1])
        weights = np.where(above[0] == above[1], ON, OFF)
        sums.insert(0, (z.T @ z)[above] * weights * (grid or 1 / (ON * contribution.records)))
    return layout, np.concatenate(sums)[None, :]


def _first(ends: torch.Tensor | None, records: int, most: int) -> np.ndarray:
    """Which records are among the first ``most`` at both of their nodes: ``[records]``, bool.

    The order is the one that they are given in, and it stays where one of them is taken out. A node counts
    all of its records, whichever end of theirs it is.
    """
    if ends is None or ends.shape != (records, 2) or ends.is_floating_point():
        raise BadInput(
            f"moments of records that read links: give the two nodes of each of the {records} records, whole "
            f"numbers [{records}, 2], not {None if ends is None else list(ends.shape)}"
        )
    both = ends.numpy().reshape(-1)  # record by record
    order = np.argsort(both, kind="stable")
    rank = np.empty(2 * records, dtype=np.int64)
    rank[order] = np.arange(2 * records) - np.searchsorted(both[order], both[order])
    return np.asarray(np.all(rank.reshape(records, 2) < most, axis=1))


def _whole(rows: np.ndarray, step: float, norm: float) -> np.ndarray:
    """Rows in whole steps: the nearest ones, but towards zero where a row would be longer than the norm."""
    steps = np.rint(rows / step)
    longest = (norm / step) ** 2 * ROUNDING_MARGIN
    long = np.square(steps).sum(axis=1) > longest
    steps[long] = np.trunc(rows[long] * (ROUNDING_MARGIN / step))
    return steps
