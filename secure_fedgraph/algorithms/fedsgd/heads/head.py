"""A head: a network of which every record has a gradient of its own."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.graph.schema import Schema


class Head(Protocol):
    """What is trained by steps under one shared noise, and how whoever has it predicts.

    Guarantees:
        - names and shapes of weights, and so of gradients, follow from the schema and the settings alone.

    Needs:
        - the gradient of a record depends on that record and the weights, on no other record and on no
          statistic over records (no BatchNorm): a client clips each by itself, and its epsilon is for one.
    """

    def init(self, schema: Schema, seed: int) -> State:
        """Seeded first weights, by name, float32."""

    def gradients(self, weights: State, graph: Data, chosen: Tensor, schema: Schema) -> State:
        """The gradients of the cross entropy of some records, one by one.

        Args:
            weights: as :meth:`init` names and shapes them; finite, and otherwise whatever a server sends.
            graph: the client's own.
            chosen: numbers of nodes, or of graphs, ``[k]``; ``k`` may be 0.

        Returns:
            By name of a weight, ``[k, ...]``.
        """

    def predict(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Class scores of all nodes or graphs, ``[n, classes]``, with whatever links the reader has."""
