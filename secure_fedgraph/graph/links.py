"""Undirected links of a PyG edge list."""

from __future__ import annotations

import torch
from torch import Tensor


def undirected_links(edge_index: Tensor) -> Tensor:
    """Every link once, ``[2, L]`` with the smaller node above; directions, repeats and loops are dropped.

    >>> undirected_links(torch.tensor([[0, 1, 2, 2], [1, 0, 2, 0]])).tolist()
    [[0, 0], [1, 2]]
    """
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    keep = low != high
    return torch.unique(torch.stack([low[keep], high[keep]]), dim=1)
