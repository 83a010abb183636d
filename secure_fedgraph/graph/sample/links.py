"""Undirected links of a PyG edge list."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

EDGE_FIELDS = ("edge_weight", "edge_attr")
"""What edges may carry besides their ends, one row an edge: selected wherever edges are selected."""


def undirected_links(edge_index: Tensor) -> Tensor:
    """Every link once, ``[2, L]`` with the smaller node above; directions, repeats and loops are dropped.

    >>> undirected_links(torch.tensor([[0, 1, 2, 2], [1, 0, 2, 0]])).tolist()
    [[0, 0], [1, 2]]
    """
    low, high = torch.minimum(*edge_index), torch.maximum(*edge_index)
    keep = low != high
    return distinct_pairs(torch.stack([low[keep], high[keep]]))


def distinct_pairs(pairs: Tensor) -> Tensor:
    """Every column of ``[2, L]`` once, ascending, by one sort of whole numbers.

    >>> distinct_pairs(torch.tensor([[2, 0, 2], [1, 5, 1]])).tolist()
    [[0, 2], [5, 1]]
    """
    if not pairs.numel():
        return pairs
    width = int(pairs[1].max()) + 1
    first, second = np.divmod(ascending((pairs[0].long() * width + pairs[1]).numpy()), width)
    return torch.from_numpy(np.stack([first, second])).to(pairs.dtype)


def ascending(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every key once, ascending. ``np.unique`` hashes whole numbers first, which took 40 times as long.

    >>> ascending(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    keys = np.sort(keys)
    return keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys


def edge_values(graph: Data, chosen: Tensor) -> dict[str, Tensor]:
    """What the chosen edges carry.

    Args:
        graph: with any of :data:`EDGE_FIELDS`.
        chosen: ``[E]`` booleans, or places of edges.

    >>> graph = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.tensor([0.5, 2.0]))
    >>> edge_values(graph, torch.tensor([False, True]))
    {'edge_weight': tensor([2.])}
    """
    return {key: graph[key][chosen] for key in EDGE_FIELDS if graph.get(key) is not None}


def places_of(graph: Data, edges: Tensor) -> Tensor:
    """Positions of edges in a graph's list; an edge that is only listed reversed gets that entry's position.

    Args:
        graph: with ``edge_index``.
        edges: ``[2, E]``, each in the graph in at least one direction.

    >>> path = Data(edge_index=torch.tensor([[2, 0], [1, 1]]), num_nodes=3)
    >>> places_of(path, torch.tensor([[0, 1], [1, 2]])).tolist()
    [1, 0]
    """
    width = int(graph.num_nodes or 0)
    keys, order = (graph.edge_index[0] * width + graph.edge_index[1]).sort(stable=True)

    def first(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        wanted = source * width + target
        place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return place, keys[place] == wanted

    forward, matches = first(*edges)
    backward, _ = first(*edges.flip(0))
    places: Tensor = order[torch.where(matches, forward, backward)]
    return places
