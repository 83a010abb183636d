"""Mashed ego-graphs, and how much of the global layers a client takes over."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.graph.sample.ego_graphs import drop_repeats, level_sizes

LEAST = 4
"""The fewest nodes that a cell of a mash mixes: a cell with fewer is emptied."""


def drop_sparse_cells(rows: Tensor, least: int = LEAST) -> Tensor:
    """The same rows; each cell (batch, position) that fewer than ``least`` nodes fill is emptied.

    Sampled slots are always full; rules that leave slots empty (``stable``, ``once``) would otherwise leave
    cells that hold one node in the clear.

    Args:
        rows: ``[batches, n, positions]`` node indices; -1 in empty slots.

    >>> drop_sparse_cells(torch.tensor([[[0, 1], [2, -1]]]), least=2).tolist()
    [[[0, -1], [2, -1]]]
    """
    underfilled = (rows >= 0).sum(1, keepdim=True) < least
    return torch.where(underfilled, -1, rows)


def cap_occurrences(
    rows: Tensor, fanout: Sequence[int], most: Sequence[int], least: int = LEAST, filled: int = 0
) -> Tensor:
    """The same ego-graphs, thinned out so that one node moves a bounded part of their mashes (rules R2, R3).

    From the centres outwards: a node that is reached through an empty place is dropped; a node stays once in
    a batch, as a centre rather than as a neighbour; and at most ``most`` times at its level, over all
    batches. Cells that fewer than ``least`` nodes fill are emptied.

    All of this depends on which nodes are present. So the bound holds for a node that is zeroed out in the
    finished table, and not for a node that is removed before the table is made.

    Args:
        rows: ``[batches, n, positions]`` node indices; -1 in empty slots.
        fanout: children a level.
        most: a number a level, centres first.
        filled: places that one ego-graph fills at most, from the centre outwards; 0 is all.

    >>> table = torch.tensor([[[0, 1, 2], [1, 0, 3]], [[2, 3, 0], [-1, -1, -1]]])
    >>> cap_occurrences(table, (2,), (1, 1), least=1).tolist()
    [[[0, -1, 2], [1, -1, 3]], [[2, -1, 0], [-1, -1, -1]]]
    """
    sizes = level_sizes(fanout)
    kept, above = rows[..., :0], rows[..., :0]
    for level, (part, times) in enumerate(zip(rows.split(sizes, dim=2), most, strict=True)):
        if level:
            part = torch.where(above.repeat_interleave(fanout[level - 1], dim=2) < 0, -1, part)
        part = drop_repeats(torch.cat([kept, part], dim=2))[..., kept.shape[2] :]
        part = _at_most(part, times)
        if filled:
            room = filled - (kept >= 0).sum(2, keepdim=True)
            part = torch.where((part >= 0).cumsum(2) <= room, part, -1)
        above = drop_sparse_cells(part, least)
        kept = torch.cat([kept, above], dim=2)
    return kept


def _at_most(part: Tensor, times: int) -> Tensor:
    """Each node's first ``times`` places, in the order of the table."""
    flat = part.flatten()
    order = torch.argsort(flat, stable=True)
    ordered = flat[order]
    _, counts = torch.unique_consecutive(ordered, return_counts=True)
    starts = counts.cumsum(0) - counts
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - starts.repeat_interleave(counts)
    return torch.where(rank < times, flat, -1).view(part.shape)


def mash(values: Tensor, rows: Tensor) -> Tensor:
    """The position-wise mean over the ego-graphs of each batch (Eq. 8).

    Ego-graphs are aligned by their order of sampling: position ``j`` with position ``j``.

    Args:
        values: ``[nodes, width]``: reduced features, or one-hot labels.
        rows: ``[batches, n, positions]`` node indices; -1 in empty slots, which count as zero vectors.

    Returns:
        ``[batches, positions, width]``, divided by ``n`` even where slots are empty.

    >>> mash(torch.tensor([[1.0], [3.0]]), torch.tensor([[[0, 1], [1, -1]]])).flatten().tolist()
    [2.0, 1.5]
    """
    batches, n, positions = rows.shape
    ground = torch.cat([values, values.new_zeros(1, values.shape[1])])
    flat = torch.where(rows < 0, len(values), rows).transpose(1, 2).reshape(-1, n)
    return F.embedding_bag(flat, ground, mode="sum").view(batches, positions, -1) / n


def class_shares(labels: Tensor, classes: int) -> Tensor:
    """``P_i``: the share of each class among a client's labelled nodes (Eq. 3)."""
    known = labels[labels >= 0]
    return torch.bincount(known, minlength=classes).float() / len(known)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """``[n, classes]`` float32; zeros where a node has no label (-1).

    >>> one_hot(torch.tensor([1, -1]), 2).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    return F.one_hot(labels.clamp(min=0), classes).float() * (labels >= 0).unsqueeze(1)


def mean_shares(soft: Tensor) -> Tensor:
    """``P_g``: the mean of soft labels ``[mashes, positions, classes]``, as a distribution.

    To undo empty slots and noise, negative shares are set to zero and the rest is scaled to a sum of 1.
    """
    shares = soft.mean((0, 1)).clamp(min=0)
    whole = shares.sum()
    return shares / whole if whole > 0 else torch.full_like(shares, 1 / len(shares))


def distance(own: Tensor, other: Tensor) -> float:
    """The earth mover's distance of two class distributions, in [0, 2] (Eq. 14)."""
    return float((own - other).abs().sum())


def coefficient(own: Tensor, other: Tensor, gamma: float) -> float:
    """``(EMD / 2) ** gamma``: the share of the global layers in a client's mixture (Eq. 15).

    >>> coefficient(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), 0.5) ** 2
    0.5000000000000001
    """
    return float((min(distance(own, other), 2.0) / 2) ** gamma)
