"""Scores of pairs of nodes: a network that encodes nodes, and a head on what it says of both."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.graph.own.pairs import ENDS, MESSAGES, OWN, PAIRS
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.parameters import blank_linear
from secure_fedgraph.models.user_models import scores_of


class PairNet(nn.Module):
    """An encoder of nodes, over the links that a graph of pairs says may be read, and a head on pairs.

    The head is a hidden layer on both nodes' products and distances (where direction counts, on their
    products and on both) and on the link's own columns. Or it is the inner product, as of most encoders: then
    the score of no link is 0.

    Args:
        encoder: ``forward(x, edge_index)`` gives ``[nodes, width]``.
        width: of what it gives.
        schema: of the graph of pairs.
        inner_product: whether scores are inner products, of links that are there or not.
    """

    reads_pairs = True
    """Whether it is called with a graph of pairs."""

    def __init__(self, encoder: nn.Module, width: int, schema: Schema, inner_product: bool = False) -> None:
        super().__init__()
        self.encoder, self._directed = encoder, schema.directed
        self._inner_product = inner_product and schema.task == Task.LINKS
        if not self._inner_product:
            self.inner = blank_linear((3 if schema.directed else 2) * width + schema.own, width)
            self.head = blank_linear(width, schema.classes)

    def forward(self, graph: Data) -> Tensor:
        """Scores of the rows of a graph of pairs, ``[rows, classes]``."""
        nodes = scores_of(self.encoder, Data(x=graph[ENDS], edge_index=graph[MESSAGES]))
        return self.scored(nodes[graph[PAIRS][0]], nodes[graph[PAIRS][1]], graph[OWN])

    def scored(self, source: Tensor, target: Tensor, own: Tensor) -> Tensor:
        """Scores of links by what the encoder says of both nodes, ``[n, width]``, and their own columns."""
        both = source * target
        if self._inner_product:
            score = both.sum(dim=1)
            return torch.stack([torch.zeros_like(score), score], dim=1)
        apart = [source, target] if self._directed else [(source - target).abs()]
        scores: Tensor = self.head(self.inner(torch.cat([both, *apart, own], dim=1)).relu())
        return scores
