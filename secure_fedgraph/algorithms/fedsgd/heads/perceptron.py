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
from secure_fedgraph.algorithms.fedsgd.heads import exact
from secure_fedgraph.algorithms.fedsgd.settings import SgdSettings
from secure_fedgraph.graph import descriptors
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import ridge
from secure_fedgraph.models.targets import slopes

LAYERS = ("inner", "inner_bias", "outer", "outer_bias")
LARGEST = 128.0
"""Weights beyond it count as that: steps of a public length stay far below, and whole numbers have an end."""
_MOST = 512.0
"""The same of what the hidden layer gives."""
_READ_BITS, _HIDDEN_BITS, _SHARE_BITS = 18, 25, 20
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
        """In closed form; no record's depends on which others are chosen."""
        z = self.read(graph, schema)[chosen]
        return gradients_of(weights, z, graph.y[chosen], self.settings.length, schema)

    def predict(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Logarithms of shares of classes, which travelled over the graph's links."""
        scores = self.scores(weights, graph, schema)
        return travelled(scores, graph.edge_index, self.settings, schema)

    def scores(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Class scores of a graph's records, each by itself."""
        return scores_of(weights, self.read(graph, schema), self.settings.length)

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


def scores_of(weights: State, z: Tensor, longest: float) -> Tensor:
    """The class scores ``[n, classes]`` of what the network reads.

    Args:
        weights: by the names of :data:`LAYERS`; beyond ``±LARGEST`` they count as that.
        z: ``[n, width]``.
        longest: what no value of ``z`` exceeds, a public number.
    """
    return _passed(Layers.of(weights), z, longest)[2].float()


def gradients_of(weights: State, z: Tensor, y: Tensor, longest: float, schema: Schema) -> State:
    """The gradients of the loss, one a record: outer products.

    Guarantees:
        - a record's gradient does not depend on which other records there are, in any bit of the network's
          sums: these are exact.

    Args:
        weights: by the names of :data:`LAYERS`; beyond ``±LARGEST`` they count as that.
        z: what the network reads, ``[k, width]``.
        y: the records' answers, ``[k]``.
        longest: what no value of ``z`` exceeds, a public number.
        schema: says what is learned.

    Returns:
        By name of a weight, ``[k, ...]``, float32.
    """
    layers = Layers.of(weights)
    before, hidden, scores = _passed(layers, z, longest)
    back = exact.on_grid(slopes(scores, y, schema), 1.0, _SHARE_BITS)
    bits = min(_outer_bits(hidden.shape[1]), exact.bits_left(_SHARE_BITS, scores.shape[1]))
    behind = (back @ exact.on_grid(layers.outer, LARGEST, bits).T) * (before > 0)
    z, hidden, behind, back = (value.float() for value in (z, hidden, behind, back))
    found = (z[:, :, None] * behind[:, None], behind, hidden[:, :, None] * back[:, None], back)
    return dict(zip(LAYERS, found, strict=True))


def _passed(layers: Layers, z: Tensor, longest: float) -> tuple[Tensor, Tensor, Tensor]:
    """What the hidden layer gets and gives, ``[n, hidden]``, and scores, ``[n, classes]``; float64."""
    read = exact.on_grid(z, exact.power_above(longest), _READ_BITS)
    inner = exact.on_grid(layers.inner, LARGEST, exact.bits_left(_READ_BITS, z.shape[1]))
    before = read @ inner + layers.inner_bias.double()
    hidden = exact.on_grid(before.relu(), _MOST, _HIDDEN_BITS)
    outer = exact.on_grid(layers.outer, LARGEST, _outer_bits(hidden.shape[1]))
    return before, hidden, hidden @ outer + layers.outer_bias.double()


def _outer_bits(hidden: int) -> int:
    return exact.bits_left(_HIDDEN_BITS, hidden)


def travelled(scores: Tensor, links: Tensor, settings: SgdSettings, schema: Schema) -> Tensor:
    """Logarithms of shares of classes that travelled over links, ``[n, classes]``; others as they are."""
    if schema.task in (Task.NUMBER, Task.LABELS):
        return scores
    shares: Tensor = APPNP(settings.steps, settings.restart)(F.softmax(scores, dim=1), links)
    return shares.clamp(min=_LEAST).log()
