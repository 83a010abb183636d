"""Weighted sums of neighbours' parts on a reader's own graph, without noise."""

from __future__ import annotations

from collections.abc import Callable

import torch

WEIGHT_OF_ONE = 2**8


def linked_sums(parts: torch.Tensor, edge_index: torch.Tensor, weight: Callable[[int], int]) -> torch.Tensor:
    """Row i is the sum of the parts of i's neighbours, each weighed by how many neighbours it has.

    Args:
        parts: ``[nodes, width]``.
        edge_index: links ``[2, E]`` of either direction or both; loops and repeated ones count for nothing.
        weight: a number of neighbours -> the weight of a node that has as many, in parts of
            :data:`WEIGHT_OF_ONE`.

    Returns:
        ``[nodes, width]``.

    >>> linked_sums(torch.eye(3), torch.tensor([[0, 1, 0], [1, 0, 2]]), lambda degree: 256 // degree).tolist()
    [[0.0, 1.0, 1.0], [0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]
    """
    low, high = edge_index.min(0).values, edge_index.max(0).values
    pairs = torch.unique((low * len(parts) + high)[low != high])
    one, other = pairs // max(len(parts), 1), pairs % max(len(parts), 1)
    degrees = torch.bincount(torch.cat([one, other]), minlength=len(parts))
    different, where = degrees.unique(return_inverse=True)
    weights = torch.tensor([weight(int(degree)) for degree in different], dtype=parts.dtype) / WEIGHT_OF_ONE
    weighted = parts * weights[where][:, None]
    return torch.zeros_like(parts).index_add_(0, one, weighted[other]).index_add_(0, other, weighted[one])
