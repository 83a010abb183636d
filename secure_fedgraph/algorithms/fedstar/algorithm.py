"""FedStar: federated learning of structure, beside features that stay at home."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedstar.network import KNOWN, SHARED, StructuredGin
from secure_fedgraph.algorithms.fedstar.structure import known_structure_of
from secure_fedgraph.algorithms.training.gin_classifier import GinClassifier
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.inputs import NOTHING, Expected, like
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.parameters import total
from secure_fedgraph.seams import ClientContext, RoundApi


class FedStar(GinClassifier):
    """Agents average what reads structure, and keep what reads features.

    A node's structure is its degree and the returns of its random walks. One channel of the network reads
    nothing else, and is averaged as in FedAvg; the other is a GIN that reads features beside it, and never
    leaves the agent. So agents whose features mean different things can learn together.

    Guarantees:
        - parameters that read features, and moments, stay with the agent;
        - what leaves is one sum over agents a round. It depends on features all the same: gradients of the
          shared part pass through the part that stays.

    References:
        Tan, Liu, Long, Zhou, Zhou, Jiang, Zhang, Federated Learning on Non-IID Graphs via Structural
        Knowledge Sharing, AAAI 2023.
    """

    name = "fedstar"
    alone: ClassVar[str] = "gin-local"
    summary = "graph classification; a channel of structure is averaged, features stay at home"
    reference = "Tan et al., AAAI 2023"
    UPDATE = Channel("update", Reveal.SUM, gives_model=True)
    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    def model(self, schema: Schema) -> StructuredGin:
        """A fresh network of the right shape."""
        s = self.settings
        return StructuredGin(schema.features, schema.classes, s.hidden, s.layers, s.dropout, schema.atoms)

    def init(self, schema: Schema, seed: int) -> State:
        """The first weights that read structure, which are public."""
        return _shared(self.start(schema, seed))

    def released(self, state: State) -> None:
        """No model is released: nobody has what reads features."""
        return None

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The shared weights."""
        if channel == self.UPDATE.name:
            return (like(self.init(schema, 0)),)
        return NOTHING if channel == self.PERSONAL.name else super().takes(channel, schema)

    def round(self, round: RoundApi, state: State) -> State:
        """Adds the mean update."""
        return total(state, round.reduce(self.UPDATE, given=state).mean)

    @UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """Trains both parts from the shared one, and returns how that moved."""
        client.memory["model"] = self.fit(client, {**self.own_model(client), **given})
        return Upload({key: client.memory["model"][key] - value for key, value in given.items()})

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee: there is no global one."""
        return Upload(self.own_model(client))

    def batch_of(self, client: ClientContext, chosen: torch.Tensor) -> Data:
        """Some of the agent's graphs, with their structure."""
        graph = client.graph
        return select_graphs(graph, chosen, {KNOWN: known_structure_of(graph.edge_index, len(graph.x))})


def _shared(parameters: State) -> State:
    return {key: value for key, value in parameters.items() if key.startswith(SHARED)}
