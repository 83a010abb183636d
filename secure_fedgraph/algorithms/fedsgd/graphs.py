"""Steps under shared noise where a record is a whole graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from secure_fedgraph.algorithms.fedsgd.algorithm import FedSgd
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import GraphPerceptron, NodePerceptron
from secure_fedgraph.algorithms.fedsgd.settings import GraphSgdSettings, SgdSettings
from secure_fedgraph.core.guarantee import Unit


class GraphFedSgd(FedSgd):
    """A small network on what describes a graph, by steps under one shared noise.

    Guarantees:
        - one graph is one record: as :class:`~secure_fedgraph.algorithms.fedsgd.algorithm.FedSgd`, for a
          graph, and for any node or link of it.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedsgd.settings.GraphSgdSettings`.
    """

    name = "fedsgd-graphs"
    summary = "a network on what describes a graph, trained by steps under one shared noise"
    rounds = 100
    data: ClassVar[str] = "proteins"
    clients: ClassVar[Mapping[str, int]] = {"proteins": 10, "dd": 10, "imdb-binary": 10}
    kinds: ClassVar[tuple[str, ...]] = ("graph",)
    partitions: ClassVar[tuple[str, ...]] = ("random", "file_order", "dirichlet")
    Settings: ClassVar[type[SgdSettings]] = GraphSgdSettings
    trains: ClassVar[type[NodePerceptron]] = GraphPerceptron
    alone = "gin-local"
    record: Unit = Unit.GRAPH
    reads_links: bool = True
    without_links = None


FedSgd.of_graphs = GraphFedSgd
