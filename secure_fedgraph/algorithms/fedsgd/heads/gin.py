"""A small graph isomorphism network, made for clipped gradients: every vector in it has a public length."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsgd.settings import SgdSettings
from secure_fedgraph.graph.descriptors import DEGREES
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.parameters import load, parameters_of
from secure_fedgraph.models.per_record import linear_graph_gradients
from secure_fedgraph.models.targets import loss_of

DEPTH = 2
"""Aggregations."""
CHUNK = 256
"""Graphs whose nodes' gradients are held at a time."""
_SIZES = 3
_USUAL_NODES, _USUAL_LINKS, _FAR = 3.5, 4.5, 2.0
"""Logarithms of the numbers of nodes and links in a graph of some tens of nodes, and how far they go from
there; by constants that no data chose."""
_CONSTANT = 0.2


class ShortGin(nn.Module):
    """A GIN whose nodes' and graphs' vectors are brought to one length after every sum.

    Sums over neighbours and over nodes grow with a graph, and with them its gradient: of the large ones a
    clip then leaves nothing but their direction. Here a node is its label and the bin of its degree. As often
    as ``DEPTH`` says it becomes ``ReLU(W (x_v + sum of x_u over v's neighbours) + b)``, the sum brought to a
    public length first. The mean over nodes of what each depth made, and the logarithms of the graph's sizes,
    go into one layer of class scores.

    Guarantees:
        - no layer mixes graphs, and nothing is a statistic over several: lengths are a node's or a graph's.

    Args:
        labels: width of a node's label, as :func:`labelled` makes it.
        classes: how many.
        hidden: units of each depth.
        length: the public length.

    References:
        Xu et al., How Powerful are Graph Neural Networks?, ICLR 2019, equations 4.1 and 4.2.
    """

    def __init__(self, labels: int, classes: int, hidden: int, length: float) -> None:
        super().__init__()
        self.length = length
        self.reduce: nn.Module = nn.utils.skip_init(nn.Linear, labels + len(DEGREES), hidden)
        self.sums = nn.ModuleList(nn.utils.skip_init(nn.Linear, hidden, hidden) for _ in range(DEPTH))
        self.head: nn.Module = nn.utils.skip_init(nn.Linear, hidden * (DEPTH + 1) + _SIZES, classes)
        for p in self.parameters():
            nn.init.zeros_(p)  # never uninitialised memory; `initialise` draws the real start

    def initialise(self, seed: int) -> None:
        """Normal weights of variance one over the inputs; biases and the layer of class scores are zero."""
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.dim() == 2 and not name.startswith("head"):
                    p.normal_(0, 1 / math.sqrt(p.shape[1]), generator=random)

    def forward(self, packed: Data) -> Tensor:
        """Class scores ``[graphs, classes]``.

        Args:
            packed: a union of graphs, with ``labels`` as :func:`labelled` adds them.
        """
        of, (source, target) = packed.graph, packed.edge_index
        graphs = len(packed.y) if packed.get("y") is not None else int(of.max()) + 1 if len(of) else 0
        degree = torch.bincount(target, minlength=len(of))
        bins = torch.bucketize(degree, torch.tensor(DEGREES), right=True) - 1
        read = torch.cat([packed.labels, F.one_hot(bins, len(DEGREES)).float()], dim=1)
        x = self.reduce(self._short(read)).relu()
        depths = [x]
        for layer in self.sums:
            x = layer(self._short(x.index_add(0, target, x[source]))).relu()
            depths.append(x)
        every = F.normalize(torch.cat(depths, dim=1), dim=1)
        nodes = torch.bincount(of, minlength=graphs).clamp(min=1)
        pooled = every.new_zeros(graphs, every.shape[1]).index_add(0, of, every) / nodes[:, None]
        sizes = _sizes(nodes, every.new_zeros(graphs).index_add(0, of, degree.float()))
        looks = torch.cat([F.normalize(pooled, dim=1), sizes], dim=1)
        scores: Tensor = self.head(self._short(looks))
        return scores

    def _short(self, values: Tensor) -> Tensor:
        return F.normalize(values, dim=1) * self.length


class GinHead:
    """A small GIN: one whole graph is one record.

    Guarantees:
        - a graph's gradient depends on that graph and the weights alone. Graphs are not padded, so no size
          of one is seen anywhere.

    Args:
        settings: of the algorithm.
    """

    def __init__(self, settings: SgdSettings) -> None:
        self.settings = settings

    def init(self, schema: Schema, seed: int) -> State:
        """Seeded first weights."""
        model = self._model(schema)
        model.initialise(seed)
        return parameters_of(model)

    def gradients(self, weights: State, graph: Data, chosen: Tensor, schema: Schema) -> State:
        """One a graph: sums of outer products over its nodes."""
        model = self._loaded(weights, schema)
        found = [
            linear_graph_gradients(model, labelled(select_graphs(graph, some), schema), loss_of(schema))
            for some in chosen.split(CHUNK)  # of none there is one empty part
        ]
        return {name: torch.cat([one[name] for one in found]) for name in weights}

    def predict(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Scores of the graphs, ``[graphs, classes]``."""
        with torch.no_grad():
            scores: Tensor = self._loaded(weights, schema)(labelled(graph, schema))
        return scores

    def _model(self, schema: Schema) -> ShortGin:
        width = sum(schema.atoms) or schema.features
        return ShortGin(width, schema.classes, self.settings.hidden, self.settings.length)

    def _loaded(self, weights: State, schema: Schema) -> ShortGin:
        model = self._model(schema)
        load(model, weights)
        return model


def labelled(packed: Data, schema: Schema) -> Data:
    """The same graphs with ``labels`` of nodes: their features; of categories one number a value."""
    made = packed.clone()
    columns = zip(schema.atoms, packed.x.T.long(), strict=True) if schema.atoms else ()
    hot = [F.one_hot(column.clamp(0, size - 1), size) for size, column in columns]
    made.labels = torch.nan_to_num(torch.cat(hot, dim=1).float() if hot else packed.x.float())
    return made


def _sizes(nodes: Tensor, ends: Tensor) -> Tensor:
    """A graph's sizes, taken from what is usual: ``[graphs, 3]``."""
    columns = [
        torch.full_like(ends, _CONSTANT),
        (nodes.float().log1p() - _USUAL_NODES) / _FAR,
        (ends.log1p() - _USUAL_LINKS) / _FAR,
    ]
    return torch.stack(columns, dim=1)
