"""What owners of columns send once: columns that are mixed, and labels that travel."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.graph.sparse_matrix import SparseMatrix

KEPT = 0.9
"""Of a travelling label, what comes from neighbours; the rest is a node's own."""
FLOOR = 1e-3
"""The least share of a class that travelling labels are believed."""


def mixing(columns: int, width: int, seed: int) -> Tensor:
    """A random matrix ``[columns, width]`` that keeps lengths of rows, exactly where ``width`` is not less.

    >>> q = mixing(3, 5, seed=1)
    >>> torch.allclose(q @ q.T, torch.eye(3), atol=1e-5)
    True
    """
    draw = torch.Generator().manual_seed(seed)
    longer, shorter = max(columns, width), min(columns, width)
    q = torch.linalg.qr(torch.randn(longer, shorter, generator=draw, dtype=torch.float64)).Q.float()
    mixed: Tensor = q.T if columns <= width else q * math.sqrt(columns / width)
    return mixed


def known(y: Tensor, train: Tensor, classes: int) -> Tensor:
    """Labels as rows ``[n, classes]``: one-hot of training nodes that have one, else 0."""
    has = train & (y >= 0)
    return F.one_hot(torch.where(has, y, 0), classes) * has[:, None].float()


def travelled(before: Tensor, known: Tensor, links: Tensor) -> Tensor:
    """Labels one step on: means over neighbours and the node, and what it had at first.

    Args:
        before: ``[n, classes]``, cut to [0, 1].
        known: the labels at first.
        links: ``[2, E]``.

    >>> start = torch.tensor([[1.0], [0.0]])
    >>> travelled(start, start, torch.tensor([[0, 1], [1, 0]])).flatten().tolist()
    [0.550000011920929, 0.44999998807907104]
    """
    nodes, before = len(before), before.clamp(0, 1)
    near = (torch.bincount(links[1], minlength=nodes) + 1).to(before)[:, None]
    means = (SparseMatrix.of_links(links, nodes).times(before) + before) / near
    return KEPT * means + (1 - KEPT) * known


def beside(beliefs: Tensor, travelled: Tensor) -> Tensor:
    """Logarithms of shares of classes times what travelling labels say, ``[n, classes]``."""
    shares = travelled.clamp(min=0) + 1e-9
    return beliefs + (shares / shares.sum(dim=1, keepdim=True) + FLOOR).log()
