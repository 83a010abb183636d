"""Mending a graph with a generator that its owner trains alone: nothing leaves the owner."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.mending import check_share, impair, mend
from secure_fedgraph.models.neighgen.mixture import PrototypeMixture
from secure_fedgraph.models.neighgen.model import NeighGen
from secure_fedgraph.models.neighgen.training import begin, predict_neighbours, train_locally

SHARE, EPOCHS, RATE, CANDIDATES = 0.15, 40, 0.01, 5
"""Of nodes that are hidden; of training, as where prototypes are released; neighbours that a node can get."""
MOST_VALUES = 2**28
"""Values of the neighbours that an owner's nodes can get (1 GiB)."""


def check(graph: Data, name: str) -> None:
    """That an owner's graph can be mended.

    Raises:
        BadInput: where hiding :data:`SHARE` hides no node, or neighbours are more than :data:`MOST_VALUES`.
    """
    nodes, width = graph.x.shape
    check_share(nodes, SHARE)
    if nodes * width * CANDIDATES > MOST_VALUES:
        raise BadInput(
            f"training.mend = at_home: neighbours for {name}'s {nodes} nodes of {width} features take more "
            "than 1 GiB; set training.mend=none"
        )


def mended(graph: Data, classes: int, generator: torch.Generator) -> Data:
    """An owner's graph with the neighbours that its own generator says are missing.

    The generator is NeighGen, which learns from hidden nodes of the owner's own as in the paper. What it
    generates are mixtures of the means of the owner's training nodes by class.

    Guarantees:
        - reads the owner's graph alone, and of labels those of training nodes.

    Args:
        graph: the owner's own, with ``x``, ``edge_index``, ``y`` and ``train_mask``; it is not changed.
        classes: how many there are.
        generator: of first weights, hidden nodes and dropout.

    Returns:
        :func:`~secure_fedgraph.graph.mending.mend`'s: generated nodes come after the owner's.

    References:
        Zhang et al., NeurIPS 2021, section 4.1, without the other owners' term (Eq. 6).
    """
    shown = Data(**{key: graph[key] for key in ("x", "edge_index", "y", "train_mask")})
    x = shown.x if shown.x.layout == torch.strided else shown.x.to_dense()
    shown.x = torch.nan_to_num(x.float())
    fgen = PrototypeMixture(128, _means(shown), CANDIDATES)
    model = NeighGen(shown.x.shape[1], classes, candidates=CANDIDATES, fgen=fgen)
    impaired = impair(shown, SHARE, generator.initial_seed() % 2**32)
    begin(model, impaired, generator.initial_seed())
    train_locally(model, impaired, EPOCHS, generator, RATE)
    return mend(shown, *predict_neighbours(model, shown, generator))


def _means(graph: Data) -> Tensor:
    """The mean of the training nodes of each class that has any, ``[k, features]``; of all nodes without."""
    if not graph.train_mask.any():
        own: Tensor = graph.x.mean(0, keepdim=True)
        return own
    _, labels = graph.y[graph.train_mask].unique(return_inverse=True)
    held = torch.nn.functional.one_hot(labels).T.to(graph.x.dtype)
    means: Tensor = held @ graph.x[graph.train_mask] / held.sum(1, keepdim=True)
    return means
