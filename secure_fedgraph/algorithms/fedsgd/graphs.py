"""Steps under shared noise where a record is a whole graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from secure_fedgraph.algorithms.fedsgd.algorithm import FedSgd
from secure_fedgraph.algorithms.fedsgd.heads.gin import GinHead
from secure_fedgraph.algorithms.fedsgd.heads.head import Head
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import GraphPerceptron
from secure_fedgraph.algorithms.fedsgd.settings import GraphSgdSettings, SgdSettings
from secure_fedgraph.core.guarantee import Unit


class GraphFedSgd(FedSgd):
    """A small network on what describes a graph, or a GIN on the graph, by steps under one shared noise.

    Guarantees:
        - one graph is one record: as :class:`~secure_fedgraph.algorithms.fedsgd.algorithm.FedSgd`, for a
          graph, and for any node or link of it.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedsgd.settings.GraphSgdSettings`.
    """

    name = "fedsgd-graphs"
    summary = "a network on whole graphs or on their descriptors, trained by steps under one shared noise"
    rounds = 100
    data: ClassVar[str] = "proteins"
    clients: ClassVar[Mapping[str, int]] = {"proteins": 10, "dd": 10, "imdb-binary": 10}
    kinds: ClassVar[tuple[str, ...]] = ("graph",)
    partitions: ClassVar[tuple[str, ...]] = ("random", "file_order", "dirichlet")
    Settings: ClassVar[type[SgdSettings]] = GraphSgdSettings
    heads: ClassVar[Mapping[str, Callable[[SgdSettings], Head]]] = {"mlp": GraphPerceptron, "gin": GinHead}
    alone = "gin-local"
    record: Unit = Unit.GRAPH
    reads_links: bool = True
    without_links = None


FedSgd.of_graphs = GraphFedSgd
