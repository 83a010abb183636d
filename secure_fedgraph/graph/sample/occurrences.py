"""Neighbours, sampled once and capped both ways, so that removing a node changes a bounded number of trees.

The rule, its bound and the proof are in ``docs/guarantees.md`` (Noisy training steps).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.trees import MISSING

Priorities = Callable[[Tensor], Tensor]
"""Links ``[2, E]`` -> one int64 each that depends on the two ends of that link and on nothing else."""


def capped_neighbours(
    edge_index: Tensor,
    nodes: int,
    most: int,
    priorities: Priorities,
    places: int = 0,
    rows: Tensor | None = None,
) -> Tensor:
    """Up to ``most`` neighbours of every node; no node is a neighbour of more than ``places``.

    First each node keeps the ``places`` lowest of its links to others; then each row keeps the ``most``
    lowest of the links that are left into it.

    Guarantees:
        - no row names a node twice, and no node stands in more than ``places`` rows;
        - a link's priority does not depend on other links. So a node that is removed with all its links
          changes its own row, the rows that it stands in, and one row for each of its neighbours that has
          more than ``places`` links (which gives the place of the removed node to another): at most
          ``1 + places + crowd`` rows, and :func:`occurrences` trees.

    Args:
        edge_index: ``[2, E]``; neighbours of a node are the sources of the links into it.
        nodes: how many.
        most: neighbours a node.
        priorities: of links; the lowest are kept.
        places: rows that a node stands in at most; 0 is ``most``.
        rows: ``[nodes]`` true where a row is needed; the others are empty and use up no place. It must not
            depend on links. By default all.

    Returns:
        ``[nodes, most]`` int64, ``MISSING`` (-1) after a row's last neighbour.

    >>> star = torch.tensor([[0, 0, 0, 1], [1, 2, 3, 0]])
    >>> table = capped_neighbours(star, 4, 2, lambda links: links[1])
    >>> table[:, 0].tolist(), table[0].tolist()
    ([1, 0, 0, -1], [1, -1])
    """
    if most < 1:
        raise BadInput(f"{most} neighbours a node: give 1 or more")
    source, target = links = _links(edge_index, rows)
    order = torch.argsort(priorities(links), stable=True)  # equal ones stay in the order of their two ends
    order = order[_rank(source[order], nodes) < (places or most)]
    order = order[_rank(target[order], nodes) < most]
    kept, rank = target[order], _rank(target[order], nodes)
    table = torch.full((nodes, most), MISSING, dtype=torch.int64)
    table[kept, rank] = source[order]
    return table


def largest_crowd(edge_index: Tensor, nodes: int, places: int, rows: Tensor | None = None) -> int:
    """The largest number of neighbours of one node that have more than ``places`` links.

    Only these neighbours give a removed node's place to another node. The crowd is at most the largest
    degree, and removing a node never makes it larger.

    >>> star = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
    >>> largest_crowd(star, 4, 2), largest_crowd(star, 4, 3)
    (1, 0)
    """
    source, target = _links(edge_index, rows)
    passing = torch.bincount(source, minlength=nodes)[source] > places
    return int(torch.bincount(target[passing], minlength=1).max())


def _links(edge_index: Tensor, rows: Tensor | None) -> Tensor:
    """The distinct links between two nodes, into rows that are needed."""
    wanted = edge_index[0] != edge_index[1]
    if rows is not None:
        wanted &= rows[edge_index[1]]
    distinct: Tensor = torch.unique(edge_index[:, wanted], dim=1)
    return distinct


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
    rows = torch.cat([table, table.new_full((1, table.shape[1]), MISSING)])  # children of an empty slot
    levels = [centres[:, None]]
    for _ in range(depth):
        levels.append(rows[levels[-1]].flatten(1))
    return torch.cat(levels, dim=1)


def occurrences(places: int, depth: int, crowd: int = 0) -> int:
    """The most trees that change when one node is removed with its links.

    Without a crowd it is the number of trees that one node stands in.

    >>> occurrences(6, 2), occurrences(5, 1), occurrences(5, 1, crowd=10)
    (43, 6, 16)
    """
    # its own tree, and those that hold one of the other rows that change, at any level but the last
    return 1 + (places + crowd) * sum(accumulate([places] * (depth - 1), lambda n, f: n * f, initial=1))
