"""One hidden layer on numbers that describe a record: a node's features, or what a graph looks like."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import APPNP

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsgd.settings import SgdSettings
from secure_fedgraph.graph import descriptors
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import ridge

LAYERS = ("inner", "inner_bias", "outer", "outer_bias")
_LEAST = 1e-12


class Layers(NamedTuple):
    """The weights, in the order of :data:`LAYERS`."""

    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor

    @classmethod
    def of(cls, weights: State) -> Layers:
        """From weights by name."""
        return cls(*(weights[name] for name in LAYERS))


class NodePerceptron:
    """A hidden layer on a node's own features; at inference shares of classes travel over links.

    Guarantees:
        - a record is a node's features, of length 1, and its class: no link is read in training.

    Args:
        settings: of the algorithm.

    References:
        Gasteiger et al., Predict then Propagate, ICLR 2019, equations 4 and 5.

    >>> head = NodePerceptron(SgdSettings(hidden=4))
    >>> {name: tuple(value.shape) for name, value in head.init(Schema(3, 2), 0).items()}
    {'inner': (3, 4), 'inner_bias': (4,), 'outer': (4, 2), 'outer_bias': (2,)}
    """

    def __init__(self, settings: SgdSettings) -> None:
        self.settings = settings

    def width(self, schema: Schema) -> int:
        """Numbers in a record."""
        return schema.features

    def records(self, graph: Data, schema: Schema) -> Tensor:
        """A graph's records: ``[n, width]``, of length 1."""
        return ridge.records(graph.x)

    def init(self, schema: Schema, seed: int) -> State:
        """Seeded first weights of the hidden layer; the outer one begins at zero."""
        width, hidden, classes = self.width(schema), self.settings.hidden, schema.classes
        random = torch.Generator().manual_seed(seed)
        first = torch.randn(width, hidden, generator=random) / math.sqrt(width)
        layers = (first, torch.zeros(hidden), torch.zeros(hidden, classes), torch.zeros(classes))
        return dict(zip(LAYERS, layers, strict=True))

    def gradients(self, weights: State, graph: Data, chosen: Tensor, schema: Schema) -> State:
        """In closed form."""
        return gradients_of(weights, self.read(graph, schema)[chosen], graph.y[chosen])

    def predict(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Logarithms of shares of classes, which travelled over the graph's links."""
        return travelled(self.scores(weights, graph, schema), graph.edge_index, self.settings)

    def scores(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Class scores of a graph's records, each by itself."""
        return scores_of(weights, self.read(graph, schema))

    def read(self, graph: Data, schema: Schema) -> Tensor:
        """Records as the network reads them: of the public length, ``[n, width]``."""
        return self.records(graph, schema) * self.settings.length


class GraphPerceptron(NodePerceptron):
    """The same where a record is a whole graph: :mod:`secure_fedgraph.graph.descriptors` describes it."""

    def width(self, schema: Schema) -> int:
        """Numbers that describe a graph."""
        return descriptors.width(schema)

    def records(self, graph: Data, schema: Schema) -> Tensor:
        """What describes each graph: ``[graphs, width]``, of length 1."""
        return descriptors.descriptors(graph, schema)

    def predict(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Scores of the graphs, ``[graphs, classes]``."""
        return self.scores(weights, graph, schema)


def scores_of(weights: State, z: Tensor) -> Tensor:
    """The class scores ``[n, classes]`` of what the network reads, ``[n, width]``."""
    layers = Layers.of(weights)
    return (z @ layers.inner + layers.inner_bias).relu() @ layers.outer + layers.outer_bias


def gradients_of(weights: State, z: Tensor, y: Tensor) -> State:
    """The gradients of the cross entropy, one a record: outer products.

    Args:
        weights: by the names of :data:`LAYERS`.
        z: what the network reads, ``[k, width]``.
        y: the records' classes, ``[k]``.

    Returns:
        By name of a weight, ``[k, ...]``.
    """
    layers = Layers.of(weights)
    before = z @ layers.inner + layers.inner_bias
    hidden = before.relu()
    shares = F.softmax(hidden @ layers.outer + layers.outer_bias, dim=1)
    back = shares - F.one_hot(y, shares.shape[1]).float()
    behind = (back @ layers.outer.T) * (before > 0)
    found = (z[:, :, None] * behind[:, None], behind, hidden[:, :, None] * back[:, None], back)
    return dict(zip(LAYERS, found, strict=True))


def travelled(scores: Tensor, links: Tensor, settings: SgdSettings) -> Tensor:
    """Logarithms of shares of classes that travelled over links, ``[n, classes]``."""
    shares: Tensor = APPNP(settings.steps, settings.restart)(F.softmax(scores, dim=1), links)
    return shares.clamp(min=_LEAST).log()
