"""What an agent is worth by FairGraphFL's baselines, and what of the aggregate that earns: pure rules.

Everything is float64 and a function of its arguments. ``agents`` is the first dimension everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from secure_fedgraph.algorithms.fairgraphfl.fairness import SMALL

LEAST = 1e-3
"""CGSV keeps every reputation at this or more before it divides by their sum, so that none vanishes."""


def of_equal_length(gradients: Tensor, length: float) -> Tensor:
    """Each agent's gradient brought to one length; a zero gradient stays zero (CGSV).

    Args:
        gradients: ``[agents, D]``.
        length: the L2 norm.

    >>> of_equal_length(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 0.5)
    tensor([[0.3000, 0.4000],
            [0.0000, 0.0000]])
    """
    scaled: Tensor = gradients * _ratio(gradients, length)
    return scaled


def at_most_of_length(gradients: Tensor, length: float) -> Tensor:
    """Each agent's gradient, shortened to a length where it is longer (RFFL).

    Args:
        gradients: ``[agents, D]``.
        length: the L2 norm.
    """
    scaled: Tensor = gradients * _ratio(gradients, length).clamp(max=1)
    return scaled


def moving_reputations(values: Tensor, alignment: Tensor, rate: float) -> Tensor:
    """``[agents]``: CGSV's reputations, ``(1 - rate) r + rate cos``, at least :data:`LEAST`, of sum 1.

    >>> moving_reputations(torch.zeros(2), torch.tensor([0.9, 0.3]), 0.05)
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    raw = ((1 - rate) * values.double() + rate * alignment.double()).clamp(min=LEAST)
    return raw / raw.sum()


def surviving_reputations(values: Tensor, alignment: Tensor, rate: float, removes: bool) -> Tensor:
    """``[agents]``: RFFL's reputations, of sum 1; an agent of 0 is out, and stays out.

    Where nobody's would be positive they stay as they were.

    Args:
        values: of the round before; agents of 0 are removed.
        alignment: cosines with the aggregate.
        rate: of the moving mean.
        removes: whether agents below a third of the mean reputation are removed now.

    >>> surviving_reputations(torch.tensor([0.45, 0.45, 0.1]), torch.tensor([1.0, 1.0, -1.0]), 0.05, True)
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    values = values.double()
    raw = torch.where(values > 0, (1 - rate) * values + rate * alignment.double(), 0.0).clamp(min=0)
    if float(raw.sum()) <= SMALL:
        return values
    raw = raw / raw.sum()
    if removes:
        raw = torch.where(raw < 1 / (3 * int((raw > 0).sum())), 0.0, raw)
    return raw / raw.sum()


def nearness(distances: Tensor) -> Tensor:
    """``[agents]``: shares of sum 1 that fall with the distance from the aggregate, ``1 / (1 + d)`` (EU).

    The paper's table names a Euclidean score and leaves its map open; this one is ours.

    >>> nearness(torch.tensor([0.0, 1.0]))
    tensor([0.6667, 0.3333], dtype=torch.float64)
    """
    scores = 1 / (1 + distances.double())
    return scores / scores.sum()


def fractions_of(values: Tensor) -> Tensor:
    """``[agents]`` in [0, 1]: each value over the largest; 0 where none is positive."""
    positive = values.double().clamp(min=0)
    most = float(positive.max()) if len(positive) else 0.0
    return positive / most if most > 0 else positive


def _ratio(gradients: Tensor, length: float) -> Tensor:
    ratio: Tensor = length / gradients.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return ratio
