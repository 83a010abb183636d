"""GraphSAGE that is trained on nodes alone, and reads neighbours where predictions are made."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import Layers, NodePerceptron
from secure_fedgraph.graph.schema import Schema


class SageHead(NodePerceptron):
    """A GraphSAGE layer and a layer of class scores: half of the hidden units read a node, half neighbours.

    In training a node is its own only neighbour: both halves read the node itself, and its gradient is that
    of a hidden layer on its features. At inference the second half reads the mean of the node and of those
    that the reader's links name (with the node itself, whom it has been trained on; without any link that is
    what training saw).

    Guarantees:
        - as :class:`~secure_fedgraph.algorithms.fedsgd.heads.perceptron.NodePerceptron`: one node is one
          record, and no link is read in training.

    Needs:
        - neighbours that are alike: nothing in training says how they differ from a node.

    References:
        Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017, algorithm 1 with the
        mean aggregator.
    """

    def predict(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Class scores with the reader's own neighbours."""
        layers, half = Layers.of(weights), self.settings.hidden // 2
        z = self.read(graph, schema)
        near = _with_neighbours(z @ layers.inner[:, half:], graph.edge_index)
        before = torch.cat([z @ layers.inner[:, :half], near], dim=1) + layers.inner_bias
        return before.relu() @ layers.outer + layers.outer_bias


def _with_neighbours(values: Tensor, links: Tensor) -> Tensor:
    """The mean over each node and the sources of the links into it, ``[n, width]``.

    >>> _with_neighbours(torch.tensor([[1.0], [3.0], [8.0]]), torch.tensor([[1], [0]])).flatten().tolist()
    [2.0, 3.0, 8.0]
    """
    source, target = links
    count = 1 + torch.bincount(target, minlength=len(values))
    return values.index_add(0, target, values[source]) / count[:, None]
