"""Federated ridge regression of classes of whole graphs, on what they look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithms.fedridge.algorithm import FedRidge
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.graph import descriptors
from secure_fedgraph.graph.schema import Schema


class GraphFedRidge(FedRidge):
    """Federated ridge regression where a record is a graph, and ``z`` describes it.

    :mod:`secure_fedgraph.graph.descriptors` has what describes one: sizes, labels, degrees, triangles.

    Guarantees:
        - one graph is one record: as :class:`~secure_fedgraph.algorithms.fedridge.algorithm.FedRidge`, for a
          graph, and for any node or link of it.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedridge.settings.RidgeSettings`.
    """

    name = "fedridge-graphs"
    summary = "ridge regression of whole graphs on their descriptors, from one sum of moments"
    data: ClassVar[str] = "proteins"
    clients: ClassVar[Mapping[str, int]] = {"proteins": 10, "dd": 10, "imdb-binary": 10}
    kinds: ClassVar[tuple[str, ...]] = ("graph",)
    partitions: ClassVar[tuple[str, ...]] = ("random", "file_order", "dirichlet")
    alone = "gin-local"
    record: Unit = Unit.GRAPH
    reads_links: bool = True
    without_links = None
    target_norm: ClassVar[float] = 1.0
    map: ClassVar[str] = "fourier"

    def described(self, schema: Schema) -> int:
        """Numbers that describe a graph."""
        return descriptors.width(schema)

    def describe(self, graph: Data, schema: Schema) -> torch.Tensor:
        """What describes each graph: ``[graphs, described]``, of length 1."""
        return descriptors.descriptors(graph, schema)


FedRidge.of_graphs = GraphFedRidge
