"""Ego-graphs of a fixed shape: one row of node indices for each node, sampled once and then kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.trees import NeighbourTable


def level_sizes(fanout: Sequence[int]) -> tuple[int, ...]:
    """Positions a level of a tree: the centre, its neighbours, theirs.

    >>> level_sizes((6, 6))
    (1, 6, 36)
    """
    return tuple(accumulate(fanout, lambda size, f: size * f, initial=1))


def ego_table(graph: Data, fanout: Sequence[int] = (6, 6), *, generator: torch.Generator) -> Tensor:
    """The ego-graph of every node as one row of node indices.

    Position 0 is the centre. With ``(6, 6)`` position ``j`` in 0..6 has the children ``6j+1 .. 6j+6``, so a
    row has 1 + 6 + 36 = 43 positions whatever the node's degree.

    Guarantees:
        - every row has the same shape, and the table does not change after it is drawn.

    Args:
        graph: with ``edge_index``; neighbours of a node are the sources of the links into it.
        fanout: slots a level.
        generator: the only source of randomness.

    Returns:
        ``[nodes, positions]`` int64, sampled uniformly with replacement; -1 where a node has no neighbour.

    Raises:
        BadInput: for a fanout below 1.

    References:
        FedEgo, ACM TKDD, section 5.1 (two hops of six).

    >>> two = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    >>> ego_table(two, (2, 1), generator=torch.Generator().manual_seed(0)).tolist()
    [[0, 1, 1, 0, 0], [1, 0, 0, 1, 1]]
    """
    if not fanout or min(fanout) < 1:
        raise BadInput(f"fanout is {tuple(fanout)}: give one number of neighbours a level, each 1 or more")
    centres = torch.arange(int(graph.num_nodes or 0))
    tree = NeighbourTable.of(graph.edge_index, len(centres)).sample_tree(centres, fanout, generator)
    return torch.cat([level.reshape(len(centres), -1) for level in tree], dim=1)


def levels(rows: Tensor, fanout: Sequence[int]) -> list[Tensor]:
    """Rows of a table as the levels of a tree: ``[b]``, ``[b, f1]``, ``[b, f1, f2]``."""
    shapes = [(len(rows), *fanout[:depth]) for depth in range(len(fanout) + 1)]
    parts = rows.split(level_sizes(fanout), dim=1)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
