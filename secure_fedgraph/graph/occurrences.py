"""Neighbours that are drawn once and capped both ways, so it is known in how many trees a node stands."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.sampling import MISSING


def capped_neighbours(edge_index: Tensor, nodes: int, most: int, generator: torch.Generator) -> Tensor:
    """Up to ``most`` neighbours of every node, drawn once; no node is a neighbour of more than ``most``.

    Guarantees:
        - no row names a node twice, and no node stands in more than ``most`` rows: it is in the trees of
          depth ``h`` of at most :func:`occurrences` nodes;
        - the table does not change after it is drawn. A node that is zeroed out on it, features and places,
          changes no row but its own and those it stands in. What it would have changed in the drawing, had it
          never been there, is outside the guarantee (relation "zero-out on the frozen table").

    Args:
        edge_index: ``[2, E]``; neighbours of a node are the sources of the links into it.
        nodes: how many.
        most: neighbours a node, and nodes that it is a neighbour of.
        generator: of the drawing.

    Returns:
        ``[nodes, most]`` int64, ``MISSING`` (-1) where there are fewer.

    >>> star = torch.tensor([[0, 0, 0, 1], [1, 2, 3, 0]])
    >>> table = capped_neighbours(star, 4, 2, torch.Generator().manual_seed(0))
    >>> int((table == 0).sum()), table[0].tolist()
    (2, [1, -1])
    """
    if most < 1:
        raise BadInput(f"{most} neighbours a node: give 1 or more")
    source, target = torch.unique(edge_index[:, edge_index[0] != edge_index[1]], dim=1)
    order = torch.randperm(len(source), generator=generator)
    for ends in (0, 1):  # first by the node that has neighbours, then by the one that is one
        pair = (target, source)[ends][order]
        order = order[_rank(pair, nodes) < most]
    kept, rank = target[order], _rank(target[order], nodes)
    table = torch.full((nodes, most), MISSING, dtype=torch.int64)
    table[kept, rank] = source[order]
    return table


def _rank(keys: Tensor, nodes: int) -> Tensor:
    """How many earlier entries have the same key."""
    by_key = torch.argsort(keys, stable=True)
    count = torch.bincount(keys, minlength=nodes)
    start = torch.cat([count.new_zeros(1), count.cumsum(0)[:-1]])
    rank = torch.empty_like(by_key)
    rank[by_key] = torch.arange(len(keys)) - start[keys[by_key]]
    return rank


def trees(table: Tensor, centres: Tensor, depth: int) -> Tensor:
    """The trees of some nodes as rows of node indices ``[b, 1 + most + most**2 + ...]``."""
    rows = torch.cat([table, table.new_full((1, table.shape[1]), MISSING)])  # children of nobody
    levels = [centres[:, None]]
    for _ in range(depth):
        levels.append(rows[levels[-1]].reshape(len(centres), -1))
    return torch.cat(levels, dim=1)


def occurrences(most: int, depth: int) -> int:
    """In how many nodes' trees one node stands at most.

    >>> occurrences(6, 2), occurrences(5, 1)
    (43, 6)
    """
    return sum(accumulate([most] * depth, lambda size, f: size * f, initial=1))
