"""Linear models of an owner of columns: smoothed over its links, and fitted to labels in one step."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.ridge import targets

SCALES = (4, 12)
"""How often columns are smoothed before they are read, and how often again."""
RIDGE = 1.0
"""Of a regression on rows whose mean squared length is 1."""
KEPT = 0.9
"""Of a travelling label, what comes from neighbours; the rest is a node's own."""
SHARPNESS = 5.0
"""Of a regression's scores as shares of classes, beside others'."""
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


def smoothed(rows: Tensor, links: Tensor, times: int) -> Tensor:
    """Rows after so many products with ``D^-1/2 (A + I) D^-1/2``."""
    nodes = len(rows)
    matrix = SparseMatrix.of_links(links, nodes)
    root = (torch.bincount(links[1], minlength=nodes) + 1).to(rows).rsqrt()[:, None]
    for _ in range(times):
        scaled = rows * root
        rows = (matrix.times(scaled) + scaled) * root
    return rows


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


def scores(columns: Tensor, links: Tensor, y: Tensor, train: Tensor, classes: int) -> Tensor:
    """What a ridge regression of labels on smoothed columns says of every node, ``[n, classes]``.

    Rows of each scale are of length 1, less their mean, and count alike.

    Args:
        columns: ``[n, width]``.
        links: ``[2, E]``.
        y: classes ``[n]``; only those of ``train`` are read, and of these only what is a class.
        train: ``[n]``, bool.
    """
    nodes = (train & (y >= 0)).nonzero().flatten()
    if not len(nodes):
        return torch.zeros(len(columns), classes)
    kernel = torch.zeros(len(columns), len(nodes))
    for times in SCALES:
        columns = smoothed(columns, links, times)
        read = F.normalize(columns, dim=1)
        read = read - read.mean(0)
        kernel += read @ read[nodes].T / (read.square().sum(1).mean().clamp(min=1e-12) * len(SCALES))
    wanted = targets(y[nodes], classes, 1.0).double()
    alike = kernel[nodes].double() + RIDGE * torch.eye(len(nodes), dtype=torch.float64)
    found: Tensor = kernel.double() @ torch.linalg.solve(alike, wanted)
    return found.float()


def beside(scores: Tensor, travelled: Tensor) -> Tensor:
    """Logarithms of shares of classes: of a regression's scores and of labels that travelled, multiplied."""
    sharp = SHARPNESS * scores / scores.norm(dim=1).mean().clamp(min=1e-12)
    shares = travelled.clamp(min=0) + 1e-9
    shares = shares / shares.sum(dim=1, keepdim=True)
    return F.log_softmax(sharp, dim=1) + (shares + FLOOR).log()
