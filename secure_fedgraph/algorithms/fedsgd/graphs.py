"""Steps under shared noise where a record is a whole graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsgd.algorithm import FedSgd
from secure_fedgraph.algorithms.fedsgd.settings import GraphSgdSettings, SgdSettings
from secure_fedgraph.graph import descriptors
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.protocol import Unit


class GraphFedSgd(FedSgd):
    """A small network on what describes a graph, trained by steps under one shared noise.

    Guarantees:
        - one graph is one record: as :class:`~secure_fedgraph.algorithms.fedsgd.algorithm.FedSgd`, for a
          graph, and for any node or link of it.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedsgd.settings.GraphSgdSettings`.
    """

    name = "fedsgd-graphs"
    summary = "a network on descriptors of whole graphs, trained by steps under one shared noise"
    rounds = 100
    data: ClassVar[str] = "proteins"
    clients: ClassVar[Mapping[str, int]] = {"proteins": 10, "dd": 10, "imdb-binary": 10}
    kinds: ClassVar[tuple[str, ...]] = ("graph",)
    partitions: ClassVar[tuple[str, ...]] = ("random", "file_order", "dirichlet")
    Settings: ClassVar[type[SgdSettings]] = GraphSgdSettings
    alone = "gin-local"
    record: ClassVar[Unit] = Unit.GRAPH
    reads_links: ClassVar[bool] = True
    without_links = None

    def width(self, schema: Schema) -> int:
        """Numbers that describe a graph."""
        return descriptors.width(schema)

    def records(self, graph: Data, schema: Schema) -> torch.Tensor:
        """What describes each graph: ``[graphs, width]``, of length 1."""
        return descriptors.descriptors(graph, schema)

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Scores of the graphs, ``[graphs, classes]``."""
        return self.scores(params, graph, schema)
