"""FedStar: federated learning of structure, beside features that stay at home."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedstar.structure import WIDTH, known_structure_of
from secure_fedgraph.algorithms.training.gin_classifier import GinClassifier
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.inputs import NOTHING, Expected, like
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.gin import Gin, GinLayer
from secure_fedgraph.models.parameters import total
from secure_fedgraph.seams import ClientContext, RoundApi

SHARED = "structure."
"""What the names of the shared parameters begin with."""
KNOWN = "structure"
"""The entry of a union of graphs with its nodes' structure, where that is known already."""


class _Structure(nn.Module):
    """The shared part: a linear layer, and a graph convolution for every layer of the GIN."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.reduce: nn.Module = nn.utils.skip_init(nn.Linear, WIDTH, hidden)
        self.convolutions = nn.ModuleList(GCNConv(hidden, hidden) for _ in range(layers))


class StructuredGin(Gin):
    """A GIN that reads structure beside features.

    ``s = linear(structure)``, ``x = linear(features)``; ``layers`` times ``x = GIN([x, s])`` with ReLU and
    dropout, then ``s = tanh(GCN(s))``; a linear layer of ``[x, s]``, the sum over nodes, and a GIN's head.

    Args:
        features, classes, hidden, layers, dropout, atoms: as of a GIN.

    References:
        Tan, Liu, Long, Zhou, Zhou, Jiang, Zhang, FedStar, AAAI 2023.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
        atoms: Sequence[int] = (),
    ) -> None:
        super().__init__(features, classes, hidden, layers, dropout, atoms)
        self.convolutions = nn.ModuleList(GinLayer(hidden, 2 * hidden) for _ in range(layers))
        self.structure = _Structure(hidden, layers)
        self.together: nn.Module = nn.utils.skip_init(nn.Linear, 2 * hidden, hidden)
        for p in self.parameters():
            nn.init.zeros_(p)  # never uninitialised memory; `initialise` draws the real start

    def initialise(self, seed: int) -> None:
        """As a GIN, and the convolutions of structure alike."""
        super().initialise(seed)
        generator = torch.Generator().manual_seed(seed + 1)
        bound = 1 / math.sqrt(self.hidden)
        with torch.no_grad():
            for p in self.structure.convolutions.parameters():
                p.uniform_(-bound, bound, generator=generator)

    def embed(self, packed: Data, generator: torch.Generator | None = None) -> Tensor:
        """``[graphs, hidden]``: the sums over nodes.

        Args:
            packed: as :func:`~secure_fedgraph.graph.sample.packing.pack` gives it, with :data:`KNOWN` where
                it is known already.
            generator: of the dropout; needed in training, unless dropout is 0.
        """
        known = packed.get(KNOWN)
        if known is None:
            known = known_structure_of(packed.edge_index, len(packed.x))
        s = self.structure.reduce(known)
        x = self.reduce(packed.x)
        links = SparseMatrix.of_links(packed.edge_index, len(x))
        for own, shared in zip(self.convolutions, self.structure.convolutions, strict=True):
            x = self._dropped(F.relu(own(torch.cat([x, s], dim=1), links)), generator)
            s = torch.tanh(shared(s, packed.edge_index))
        x = self.together(torch.cat([x, s], dim=1))
        graphs = int(packed.graph.max()) + 1 if packed.graph.numel() else 0
        pooled: Tensor = x.new_zeros(graphs, self.hidden).index_add(0, packed.graph, x)
        return pooled


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
