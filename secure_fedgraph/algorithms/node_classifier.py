"""Classification of nodes or whole graphs: the model and its predictions, shared by whoever trains one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.graph_classifier import graph_network
from secure_fedgraph.algorithms.local_training import TrainingSettings
from secure_fedgraph.algorithms.private_training import check_crowd, check_no_dropout, touched
from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.ego import EgoSage
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.parameters import glorot, load
from secure_fedgraph.models.per_record import check_model
from secure_fedgraph.protocol.given import Forms

ModelMaker = Callable[[Schema], nn.Module]


class NodeClassifier(Algorithm):
    """An algorithm that trains one classifier: of nodes, or of whole graphs where the data are sets of them.

    Args:
        model: makes the model from the public schema; by default what the settings name. Any
            ``torch.nn.Module`` whose ``forward(x, edge_index)`` gives class scores serves; for whole graphs
            ``forward(packed, generator)``, where the generator draws dropout.
        settings: :class:`~secure_fedgraph.algorithms.local_training.TrainingSettings`.
    """

    partitions: ClassVar[tuple[str, ...]] = ("louvain", "random", "label_skew", "file_order", "dirichlet")
    Settings: ClassVar[type[TrainingSettings]] = TrainingSettings
    settings: TrainingSettings

    def __init__(self, model: ModelMaker | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._make = model

    def made_with(self) -> dict[str, Any]:
        """The model's maker, where one was given."""
        return {} if self._make is None else {"model": self._make}

    @property
    def hops(self) -> int:
        """Sampling depth: a node at most this far from a training node can be touched."""
        return len(self.settings.fanout)

    def occurrences(self, unit: str) -> int:
        """One graph is one record; a node's removal changes the trees that it is in, and what it leaves."""
        return touched(self.settings, unit)

    def check_touched(self, graph: Data, unit: str) -> None:
        """How many neighbours of one node have more links than places."""
        if unit == "node":
            check_crowd(graph, self.settings)

    def check_records(self, schema: Schema, unit: str) -> None:
        """The fan-outs, and the model that the settings or the caller make."""
        super().check_records(schema, unit)
        whole = schema.kind == GraphSetDataset.kind
        if whole:
            check_no_dropout(self.settings)
        check_model(self.model(schema), whole)

    def takes(self, channel: str, schema: Schema) -> Forms | None:
        """For its scores: the model that is released."""
        if channel in (self.METRICS.name, self.OWN_TESTS.name):
            return self._takes_released(schema)
        return super().takes(channel, schema)

    def model(self, schema: Schema) -> nn.Module:
        """A fresh model of the right shape."""
        if self._make is not None:
            return self._make(schema)
        settings = self.settings
        if schema.kind == GraphSetDataset.kind:
            return graph_network(schema, settings)
        if settings.network not in ("sage", "ego"):
            raise BadInput(
                f"network = {settings.network!r} classifies whole graphs, not nodes: use sage or ego"
            )
        if settings.network == "ego":
            return EgoSage(
                schema.features, schema.classes, settings.hidden[0], settings.fanout, dropout=settings.dropout
            )
        return GraphSage(schema.features, schema.classes, settings.hidden)

    def start(self, schema: Schema, seed: int) -> nn.Module:
        """A model with seeded first weights: its own rule or else Glorot, the head as the settings say."""
        model = self.model(schema)
        initialise = getattr(model, "initialise", None)
        if callable(initialise):
            initialise(seed)
        else:
            glorot(model, seed)
        head = getattr(model, "head", None)
        if self.settings.head == "zeros" and isinstance(head, nn.Module):
            with torch.no_grad():
                for p in head.parameters():
                    p.zero_()
        return model

    def training_graph(self, me: Any) -> Data:
        """What a client trains on: its own graph."""
        graph: Data = me.graph
        return graph

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Class scores from whole neighbourhoods."""
        model = self.model(schema)
        load(model, params)
        model.eval()
        with torch.no_grad():
            whole = schema.kind == GraphSetDataset.kind
            scores: torch.Tensor = model(graph) if whole else model(graph.x, graph.edge_index)
        return scores
