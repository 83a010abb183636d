"""The private truth, for the judges only: no attack gets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

from secure_fedgraph.federation import Federation


def vocabulary(federation: Federation, hops: int) -> dict[str, np.ndarray]:
    """Owner -> which words occur on nodes that its training can touch: training nodes and ``hops`` around."""
    return {name: _touched(graph, hops) for name, graph in federation.owners.items()}


def label_counts(federation: Federation) -> dict[str, np.ndarray]:
    """Owner -> its training labels by class."""
    classes = federation.schema.classes
    return {
        name: torch.bincount(graph.y[graph.train_mask], minlength=classes).numpy().astype(np.float64)
        for name, graph in federation.owners.items()
    }


def mean_shares(
    counts: Mapping[str, np.ndarray], targets: Mapping[str, Sequence[str]]
) -> tuple[dict[str, np.ndarray], bool]:
    """What a guess about several owners' labels is held against: the mean of their shares, of all labels.

    Returns:
        Target -> that, and whether every target is one owner, whose numbers are whole.
    """
    true = {}
    for target, owners in targets.items():
        mine = [counts[owner] for owner in owners]
        true[target] = sum(one.sum() for one in mine) * np.mean([one / one.sum() for one in mine], axis=0)
    return true, all(len(owners) == 1 for owners in targets.values())


def node_features(federation: Federation) -> dict[str, np.ndarray]:
    """Owner -> the features of all its nodes, ``[nodes, words]``."""
    return {name: graph.x.numpy() for name, graph in federation.owners.items()}


def _touched(graph: Data, hops: int) -> np.ndarray:
    nodes, *_ = k_hop_subgraph(
        graph.train_mask.nonzero().flatten(), hops, graph.edge_index, num_nodes=graph.num_nodes
    )
    return np.asarray((graph.x[nodes] != 0).any(0).numpy())
