"""When a cluster of agents is split in two, and where: pure rules."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.loading import postponed

networkx = postponed("networkx")
SMALLEST = 3
"""Agents that a cluster has at least before it is split: two agents have one cut, which says nothing."""


def cosine_similarity(updates: Tensor) -> np.ndarray:
    """``[agents, agents]``: cosines plus 1, so none is negative; that of a zero update is 1 (GCFL).

    Args:
        updates: ``[agents, D]``.
    """
    scaled = torch.nn.functional.normalize(updates.double(), dim=1)
    return (scaled @ scaled.T + 1).clamp(min=0).numpy()


def sequence_similarity(norms: Tensor) -> np.ndarray:
    """``[agents, agents]``: the largest distance less each, by dynamic time warping (GCFL+).

    Args:
        norms: ``[rounds, agents]`` lengths of updates.

    >>> sequence_similarity(torch.tensor([[1.0, 1.0, 5.0], [2.0, 2.0, 5.0]])).round(2).tolist()
    [[5.0, 5.0, 0.0], [5.0, 5.0, 0.0], [0.0, 0.0, 5.0]]
    """
    from dtaidistance import dtw  # loads its C code

    sequences = np.ascontiguousarray(norms.double().T.numpy())
    distances = np.asarray(dtw.distance_matrix_fast(sequences))
    found: np.ndarray = distances.max() - distances
    return found


def is_settled(updates: Tensor, mean_below: float, one_above: float) -> bool:
    """Whether a cluster as a whole moves little while one of its agents still moves much.

    Args:
        updates: ``[agents, D]``.
        mean_below: what the length of their mean is below.
        one_above: what the longest of them is above.
    """
    mean, longest = updates.mean(0).norm(), updates.norm(dim=1).max()
    return bool(mean < mean_below) and bool(longest > one_above)


def minimum_cut(similarity: np.ndarray) -> Tensor | None:
    """``[agents]`` booleans: the side of the cut that the first agent is not on (Stoer and Wagner).

    None where all pairs are equally similar: every cut is then as good as another.

    >>> minimum_cut(np.array([[2.0, 1.9, 0.1], [1.9, 2.0, 0.1], [0.1, 0.1, 2.0]])).tolist()
    [False, False, True]
    """
    agents = len(similarity)
    pairs = similarity[np.triu_indices(agents, 1)]
    if agents < SMALLEST or np.ptp(pairs) <= 1e-12 * max(1.0, float(np.abs(pairs).max())):
        return None
    graph = networkx.from_numpy_array(np.ones((agents, agents)) - np.eye(agents))
    for one, other, edge in graph.edges(data=True):
        edge["weight"] = float(similarity[one, other])
    _, (side, _) = networkx.stoer_wagner(graph)
    cut = torch.zeros(agents, dtype=torch.bool)
    cut[list(side)] = True
    return ~cut if bool(cut[0]) else cut


def split(clusters: Tensor, members: Tensor, apart: Tensor) -> Tensor:
    """``[agents]`` cluster numbers after some members of one left it for a new one.

    Args:
        clusters: ``[agents]`` numbers from 0.
        members: ``[m]`` the agents of one cluster.
        apart: ``[m]`` booleans.

    >>> split(torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]), torch.tensor([False, False, True])).tolist()
    [0, 0, 1]
    """
    found = clusters.clone()
    found[members[apart]] = int(clusters.max()) + 1
    return found
