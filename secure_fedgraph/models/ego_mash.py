"""Mashed ego-graphs, and how much of the global layers a client takes over."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST = 4
"""Nodes that a cell of a mash mixes: a cell of fewer is emptied."""


def crowded(rows: Tensor, least: int = LEAST) -> Tensor:
    """The same rows with every (batch, position) emptied that fewer than ``least`` nodes fill.

    Sampled slots are always full; rules that leave slots empty (``stable``, ``once``) would otherwise leave
    cells that hold one node in the clear.

    Args:
        rows: ``[batches, n, positions]`` node indices; -1 in empty slots.

    >>> crowded(torch.tensor([[[0, 1], [2, -1]]]), least=2).tolist()
    [[[0, -1], [2, -1]]]
    """
    lonely = (rows >= 0).sum(1, keepdim=True) < least
    return torch.where(lonely, -1, rows)


def mash(values: Tensor, rows: Tensor) -> Tensor:
    """The position-wise mean over the ego-graphs of each batch (Eq. 8).

    Ego-graphs are aligned by their order of sampling: position ``j`` with position ``j``.

    Args:
        values: ``[nodes, width]``: reduced features, or one-hot labels.
        rows: ``[batches, n, positions]`` node indices; -1 in empty slots, which count as zero vectors.

    Returns:
        ``[batches, positions, width]``, divided by ``n`` whatever is missing.

    >>> mash(torch.tensor([[1.0], [3.0]]), torch.tensor([[[0, 1], [1, -1]]])).flatten().tolist()
    [2.0, 1.5]
    """
    batches, n, positions = rows.shape
    ground = torch.cat([values, values.new_zeros(1, values.shape[1])])
    flat = torch.where(rows < 0, len(values), rows).transpose(1, 2).reshape(-1, n)
    return F.embedding_bag(flat, ground, mode="sum").view(batches, positions, -1) / n


def class_shares(labels: Tensor, classes: int) -> Tensor:
    """``P_i``: the share of each class among a client's nodes (Eq. 3)."""
    return torch.bincount(labels, minlength=classes).float() / len(labels)


def mean_shares(soft: Tensor) -> Tensor:
    """``P_g``: the mean of soft labels ``[mashes, positions, classes]``, as a distribution.

    Empty slots and noise are taken out again: negative shares are zero and the rest adds up to 1.
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
