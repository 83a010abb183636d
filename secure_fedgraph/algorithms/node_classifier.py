"""Node classification: the model and its predictions, shared by every algorithm that trains one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.local_training import TrainingSettings
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.parameters import glorot, load

ModelMaker = Callable[[Schema], nn.Module]


class NodeClassifier(Algorithm):
    """An algorithm that trains one node classifier.

    Args:
        model: makes the model from the public schema; a GraphSAGE with the settings' widths by default. Any
            ``torch.nn.Module`` whose ``forward(x, edge_index)`` gives class scores serves.
        settings: :class:`~secure_fedgraph.algorithms.local_training.TrainingSettings`.
    """

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

    def model(self, schema: Schema) -> nn.Module:
        """A fresh model of the right shape."""
        if self._make is not None:
            return self._make(schema)
        return GraphSage(schema.features, schema.classes, self.settings.hidden)

    def start(self, schema: Schema, seed: int) -> nn.Module:
        """A model with seeded first weights: Glorot, the head as the settings say."""
        model = self.model(schema)
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
            scores: torch.Tensor = model(graph.x, graph.edge_index)
        return scores
