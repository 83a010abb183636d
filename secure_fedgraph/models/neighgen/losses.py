"""NeighGen's losses: counts, features against own hidden neighbours, features against other owners."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.trees import MISSING

FeatLossNorm = Literal["paper_sum", "per_dim_mean"]
_SCRATCH = 1 << 24
"""Floats that a search for nearest rows may hold at a time (64 MiB)."""


def count_loss(predicted: Tensor, true: Tensor) -> Tensor:
    """Mean smooth L1 between the predicted and the true number of hidden neighbours, both ``[n]``."""
    return F.smooth_l1_loss(predicted, true.to(predicted.dtype))


def feature_scale(norm: FeatLossNorm, nodes: int, candidates: int, features: int) -> float:
    """What a sum of squared distances is multiplied by.

    ``paper_sum`` divides by the number of nodes, as Eq. 4 does. ``per_dim_mean`` is the mean over all
    nodes, candidate slots and feature columns, as the released code takes it: ``candidates * features``
    times smaller.

    >>> feature_scale("paper_sum", 4, 5, 10), feature_scale("per_dim_mean", 4, 5, 10)
    (0.25, 0.005)
    """
    return 1 / max(nodes, 1) / (candidates * features if norm == "per_dim_mean" else 1)


def matched_distances(rows: Tensor, choice: Tensor, pool: Tensor) -> Tensor:
    """Squared distance from each row to the nearest of its own few rows of ``pool``; 0 where it has none.

    Args:
        rows: ``[t, d]``.
        choice: ``[t, h]`` rows of ``pool``, padded with -1.
        pool: ``[m, d]``.

    Returns:
        ``[t]``, with the gradient of the distance to the row chosen.
    """
    some = (choice != MISSING).any(1).nonzero().flatten()
    rows, choice = rows.index_select(0, some), choice[some]
    with torch.no_grad():
        row, column = (choice != MISSING).nonzero(as_tuple=True)
        size = max(_SCRATCH // max(rows.shape[1], 1), 1)
        apart = [
            (rows[r] - pool[choice[r, c]]).square_().sum(1)
            for r, c in zip(row.split(size), column.split(size), strict=True)
        ]
        distances = rows.new_full(choice.shape, float("inf"))
        distances[row, column] = torch.cat(apart)
        nearest = choice.gather(1, distances.argmin(1, keepdim=True)).squeeze(1) if len(some) else row
    return (rows - pool[nearest]).square().sum(1)


def nearest_distances(rows: Tensor, pool: Tensor) -> Tensor:
    """Squared distance from each row ``[t, d]`` to the nearest row of ``pool [m, d]``, ``[t]``.

    The search is one matrix product; then the distance to the nearest row is computed exactly.

    Raises:
        BadInput: for an empty pool, or another width.
    """
    if pool.dim() != 2 or not len(pool) or pool.shape[1] != rows.shape[1]:
        raise BadInput(
            f"targets have shape {tuple(pool.shape)}: give one or more rows of {rows.shape[1]} features"
        )
    with torch.no_grad():
        lengths = pool.square().sum(1)
        # |x|^2 is the same for all of a row's candidates
        chunks = [
            torch.addmm(lengths, part, pool.T, alpha=-2).argmin(1)
            for part in rows.split(max(_SCRATCH // len(pool), 1))
        ]
        nearest = torch.cat(chunks)
    return (rows - pool[nearest]).square().sum(1)
