"""Ego-graphs of a fixed shape: one row of node indices for each node, sampled once and then kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.colours import mix
from secure_fedgraph.graph.sample.trees import MISSING, NeighbourTable

SLOTS = ("sampled", "stable")


def level_sizes(fanout: Sequence[int]) -> tuple[int, ...]:
    """Positions a level of a tree: the centre, its neighbours, theirs.

    >>> level_sizes((6, 6))
    (1, 6, 36)
    """
    return tuple(accumulate(fanout, lambda size, f: size * f, initial=1))


def ego_table(
    graph: Data,
    fanout: Sequence[int] = (6, 6),
    *,
    generator: torch.Generator,
    slots: str = "sampled",
) -> Tensor:
    """The ego-graph of every node as one row of node indices.

    Position 0 is the centre. With ``(6, 6)`` position ``j`` in 0..6 has the children ``6j+1 .. 6j+6``, so a
    row has 1 + 6 + 36 = 43 positions whatever the node's degree.

    Guarantees:
        - every row has the same shape, and the table does not change after it is drawn;
        - with ``slots="stable"`` a neighbour's slot at ``w`` depends on these two nodes only. Of several
          neighbours that want the same slot one stays, so a neighbour influences no other slot.

    Args:
        graph: with ``edge_index``; neighbours of a node are the sources of the links into it.
        fanout: slots a level.
        generator: the only source of randomness.
        slots: ``sampled``, uniformly with replacement as in the paper: only isolated nodes leave slots
            empty; or ``stable``, neighbour ``u`` of ``w`` in slot ``PRF(w, u) mod fanout``, which leaves most
            slots empty on sparse graphs and is what a bound on one node's influence needs.

    Returns:
        ``[nodes, positions]`` int64, ``MISSING`` (-1) in empty slots.

    Raises:
        BadInput: for a fanout below 1, or ``slots`` that is none of :data:`SLOTS`.

    References:
        FedEgo, ACM TKDD, section 5.1 (two hops of six).

    >>> two = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    >>> ego_table(two, (2, 1), generator=torch.Generator().manual_seed(0)).tolist()
    [[0, 1, 1, 0, 0], [1, 0, 0, 1, 1]]
    """
    if not fanout or min(fanout) < 1:
        raise BadInput(f"fanout is {tuple(fanout)}: give one number of neighbours a level, each 1 or more")
    if slots not in SLOTS:
        raise BadInput(f"slots is {slots!r}: use one of {', '.join(SLOTS)}")
    centres = torch.arange(int(graph.num_nodes or 0))
    if slots == "sampled":
        tree = NeighbourTable.of(graph.edge_index, len(centres)).sample_tree(centres, fanout, generator)
    else:
        links = graph.edge_index
        mixed = _mixed(links, int(torch.randint(2**62, (1,), generator=generator)))
        tree = [centres]
        for hop in fanout:
            table = _stable_slots(links, len(centres), hop, mixed)
            # the last row stands for the children of an empty slot
            tree.append(table[tree[-1]])
    return torch.cat([level.reshape(len(centres), -1) for level in tree], dim=1)


def drop_repeats(rows: Tensor) -> Tensor:
    """Keeps the first occurrence of a node in each batch, centres before neighbours; the others are emptied.

    Args:
        rows: ``[..., n, positions]`` node indices of batches of ``n`` ego-graphs.

    Returns:
        The same shape. Centres that differ from each other all stay.

    >>> drop_repeats(torch.tensor([[[5, 7, 7], [7, 5, 8]]])).tolist()
    [[[5, -1, -1], [7, -1, 8]]]
    """
    # position by position, so that a node's centre comes before its occurrences as a neighbour
    flat = rows.transpose(-1, -2).reshape(-1, rows.shape[-1] * rows.shape[-2])
    order = torch.argsort(flat, dim=1, stable=True)
    ordered = flat.gather(1, order)
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    again = torch.zeros_like(repeated).scatter_(1, order, repeated)
    kept = torch.where(again, MISSING, flat)
    return kept.reshape(rows.transpose(-1, -2).shape).transpose(-1, -2).contiguous()


def levels(rows: Tensor, fanout: Sequence[int]) -> list[Tensor]:
    """Rows of a table as the levels of a tree: ``[b]``, ``[b, f1]``, ``[b, f1, f2]``."""
    shapes = [(len(rows), *fanout[:depth]) for depth in range(len(fanout) + 1)]
    parts = rows.split(level_sizes(fanout), dim=1)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _mixed(edge_index: Tensor, key: int) -> np.ndarray:
    """A number for each link that follows from its two ends and the key."""
    source, target = edge_index.numpy().astype(np.uint64)
    return mix(mix(mix(np.full_like(source, key)) ^ target) ^ source)


def _stable_slots(edge_index: Tensor, nodes: int, fanout: int, mixed: np.ndarray) -> Tensor:
    """``[nodes + 1, fanout]``: the neighbour in each slot of each node; the last row is empty."""
    source, target = edge_index.numpy().astype(np.uint64)
    cell = target * np.uint64(fanout) + mixed % np.uint64(fanout)
    order = np.lexsort((mixed, cell))
    _, first = np.unique(cell[order], return_index=True)
    winners = order[first]
    table = np.full((nodes + 1) * fanout, MISSING, dtype=np.int64)
    table[cell[winners].astype(np.int64)] = source[winners].astype(np.int64)
    return torch.from_numpy(table.reshape(nodes + 1, fanout))
