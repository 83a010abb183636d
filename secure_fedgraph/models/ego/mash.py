"""Mashed ego-graphs, and how much of the global layers a client takes over."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

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
