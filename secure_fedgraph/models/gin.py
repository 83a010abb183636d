"""The graph isomorphism network of FairGraphFL: three sum aggregations, sum pooling, a two-layer head."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.molecules import Embedded
from secure_fedgraph.models.parameters import blank_linear

CONVOLUTIONS = "convolutions."
"""What the names of the convolutions' parameters begin with: the part that the released code shares."""


class GinLayer(nn.Module):
    """``MLP(x_v + sum of x_u over v's neighbours)``, the MLP with one hidden layer.

    What torch-geometric's GINConv computes with an epsilon of 0, under the same names of parameters. Every
    client makes a model in every round, and this layer is made faster.

    Args:
        width: of the output and in between.
        inputs: of the rows that are summed; ``width`` if None.
    """

    def __init__(self, width: int, inputs: int | None = None) -> None:
        super().__init__()
        first = blank_linear(width if inputs is None else inputs, width)
        self.nn = nn.Sequential(first, nn.ReLU(), blank_linear(width, width))

    def forward(self, x: Tensor, links: SparseMatrix) -> Tensor:
        """``[nodes, width]`` from ``[nodes, inputs]`` and the links as ``of_links`` gives them."""
        made: Tensor = self.nn(links.times(x) + x)
        return made


class Gin(nn.Module):
    """Classes of whole graphs.

    Linear ``features -> hidden``; ``layers`` times ``MLP(x_v + sum of x_u over v's neighbours)``, ReLU and
    dropout; the sum over a graph's nodes is its embedding; linear, ReLU, dropout, linear.

    Args:
        features: columns of ``x``.
        classes: how many.
        hidden: width of all layers in between.
        layers: how many aggregations.
        dropout: after every ReLU, except inside an MLP.
        atoms: where the columns are categories, how many values each can take: the first layer then has a
            vector for each value, as a linear layer has for one-hot columns.

    References:
        Xu et al., How Powerful are Graph Neural Networks?, 2019; sizes of FairGraphFL and GCFL.
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
        super().__init__()
        if min(features, classes, hidden, layers) < 1:
            raise BadInput(
                f"a GIN of {features} features, {classes} classes, width {hidden} and {layers} layers: "
                "each is at least 1"
            )
        self.hidden, self.dropout = hidden, dropout
        linear: nn.Module = blank_linear(features, hidden)
        self.reduce: nn.Module = Embedded(atoms, hidden) if atoms else linear
        self.convolutions = nn.ModuleList(GinLayer(hidden) for _ in range(layers))
        self.between: nn.Module = blank_linear(hidden, hidden)
        self.head: nn.Module = blank_linear(hidden, classes)

    def initialise(self, seed: int) -> None:
        """Uniform within one over the square root of the inputs, as the released code's layers start."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for layer in self.modules():
                if isinstance(layer, nn.Linear | Embedded):
                    inputs = len(layer.table) if isinstance(layer, Embedded) else layer.in_features
                    bound = 1 / math.sqrt(inputs)
                    for p in layer.parameters():
                        p.uniform_(-bound, bound, generator=generator)

    def embed(self, packed: Data, generator: torch.Generator | None = None) -> Tensor:
        """``[graphs, hidden]``: the sums over nodes, which prototypes are means of.

        Args:
            packed: as :func:`~secure_fedgraph.graph.sample.packing.pack` gives it.
            generator: of the dropout; needed in training, unless dropout is 0.
        """
        x = self.reduce(packed.x)
        links = SparseMatrix.of_links(packed.edge_index, len(x))
        for convolution in self.convolutions:
            x = self._dropped(F.relu(convolution(x, links)), generator)
        graphs = int(packed.graph.max()) + 1 if packed.graph.numel() else 0
        pooled: Tensor = x.new_zeros(graphs, self.hidden).index_add(0, packed.graph, x)
        return pooled

    def classify(self, embedded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """``[graphs, classes]`` scores of embeddings."""
        scores: Tensor = self.head(self._dropped(F.relu(self.between(embedded)), generator))
        return scores

    def forward(self, packed: Data, generator: torch.Generator | None = None) -> Tensor:
        """``[graphs, classes]`` scores."""
        return self.classify(self.embed(packed, generator), generator)

    def _dropped(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        if not self.training or not self.dropout:
            return x
        if generator is None:
            raise BadInput("a GIN in training draws its dropout from a generator: pass one, or set dropout 0")
        kept = torch.rand(x.shape, generator=generator, device=generator.device).ge_(self.dropout)
        return x * kept.to(x.device).div_(1 - self.dropout)
