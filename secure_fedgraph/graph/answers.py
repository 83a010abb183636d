"""Answers: what is known of nodes, graphs or links, and learned of the others."""

from __future__ import annotations

import torch
from torch import Tensor


def answered(y: Tensor) -> Tensor:
    """Which have an answer, ``[n]``: a class from 0 on, or numbers that are all there.

    >>> answered(torch.tensor([0, -1])).tolist(), answered(torch.tensor([1.5, float("nan")])).tolist()
    ([True, False], [True, False])
    """
    if not y.is_floating_point():
        return y >= 0
    known: Tensor = torch.isfinite(y).reshape(len(y), -1).all(dim=1)
    return known
