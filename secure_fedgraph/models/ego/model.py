"""FedEgo's classifier: a reduction layer, mean-aggregating layers over an ego-graph, a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.ego_graphs import level_sizes
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.models.molecules import dropped
from secure_fedgraph.models.parameters import blank_linear
from secure_fedgraph.models.sparse_rows import Features, chosen, compact, product

REDUCTION = "reduction."
"""What the names of the shared part's parameters begin with; the rest is the personal part."""


class Reduction(nn.Module):
    """``ReLU(x W + b)``: what every client's features are reduced by (Eq. 7).

    Args:
        features: width of ``x``.
        width: of the result.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        # one row a feature, so that the product with a bag of words adds a few rows up
        self.weight = nn.Parameter(torch.zeros(features, width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Features) -> Tensor:
        """``[nodes, width]``."""
        return F.relu(product(x, self.weight) + self.bias)


class MeanLayer(nn.Module):
    """A GraphSAGE layer that adds: ``W1 mean_{u in N(v)} p_u + b + W2 p_v`` (Eq. 10, before its ReLU).

    Args:
        width: of input and output.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.neighbour: nn.Module = blank_linear(width, width)
        self.own: nn.Module = blank_linear(width, width, bias=False)

    def forward(self, own: Tensor, mean: Tensor) -> Tensor:
        """``own`` and ``mean`` are ``[..., width]``."""
        result: Tensor = self.neighbour(mean) + self.own(own)
        return result


class MeanLayers(nn.ModuleList):
    """Several mean-aggregating layers, over trees or over a whole graph.

    A node that is missing counts as the zero vector among the inputs.

    Args:
        width: of all of them.
        depth: how many.
    """

    def __init__(self, width: int, depth: int) -> None:
        super().__init__(MeanLayer(width) for _ in range(depth))

    def over_tree(self, rows: Tensor, tree: Sequence[Tensor]) -> Tensor:
        """The centres' embeddings ``[b, width]``, from the distinct nodes of a batch.

        Args:
            rows: ``[distinct, width]``.
            tree: levels of indices into it: ``[b]``, ``[b, f1]``, ``[b, f1, f2]``.
        """
        batch, first = len(tree[0]), cast(MeanLayer, self[0])
        inner = torch.cat([level.reshape(batch, -1) for level in tree[:-1]], dim=1)
        means = [
            F.embedding_bag(level.reshape(-1, level.shape[-1]), rows, mode="mean").view(
                batch, -1, rows.shape[1]
            )
            for level in tree[1:]
        ]
        # a node's own product is the same in all its places, and most nodes have several
        distinct, place = torch.unique(inner, return_inverse=True)
        own = first.own(rows.index_select(0, distinct)).index_select(0, place.flatten())
        start = own.view(*inner.shape, -1) + first.neighbour(torch.cat(means, dim=1))
        return self._upwards(start, [level.shape[-1] for level in tree[1:]])

    def over_positions(self, values: Tensor, fanout: Sequence[int]) -> Tensor:
        """The same from values of all positions ``[b, positions, width]``, such as a mash's."""
        return self._upwards(self[0](*_with_children(values, fanout)), fanout)

    def _upwards(self, x: Tensor, fanout: Sequence[int]) -> Tensor:
        """From the first layer's result at every position but the leaves to the centres."""
        x = F.relu(x)
        for depth in range(1, len(self)):
            x = F.relu(self[depth](*_with_children(x, fanout[: len(fanout) - depth])))
        return x[:, 0]

    def over_graph(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Every node's embedding ``[nodes, width]``, from whole neighbourhoods."""
        average = NeighbourTable.of(edge_index, len(x)).mean_matrix(x.dtype)
        for layer in self:
            x = F.relu(layer(x, average @ x))
        return x


def _with_children(values: Tensor, fanout: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Values at every position but the leaves, and the means over their children."""
    parts = values.split(level_sizes(fanout), dim=1)
    means = [below.reshape(*above.shape[:2], -1, below.shape[2]).mean(2) for above, below in pairwise(parts)]
    return torch.cat(parts[:-1], dim=1), torch.cat(means, dim=1)


class EgoSage(nn.Module):
    """FedEgo's model: reduction layer, two mean-aggregator layers over ego-graphs, bias-free classifier.

    Args:
        features: width of ``x``.
        classes: number of classes.
        width: of every hidden layer.
        fanout: neighbours a level; as many layers as numbers.
        dropout: share of every node's reduced features that are dropped in training, once a node and batch.

    References:
        FedEgo, ACM TKDD, Eq. 7, 10 and section 5.2.

    >>> EgoSage(4, 2, width=3)(torch.ones(3, 4), torch.tensor([[0], [1]])).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        features: int,
        classes: int,
        width: int = 512,
        fanout: Sequence[int] = (6, 6),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width < 1 or not fanout or min(fanout) < 1:
            raise BadInput(f"width {width} and fanout {tuple(fanout)}: give numbers from 1")
        self.fanout = tuple(fanout)
        self.dropout = dropout
        self.reduction = Reduction(features, width)
        self.layers = MeanLayers(width, len(self.fanout))
        self.head: nn.Module = blank_linear(width, classes, bias=False)

    @property
    def positions(self) -> int:
        """Positions of an ego-graph that a mash averages."""
        return sum(level_sizes(self.fanout))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores ``[nodes, classes]`` of every node, from whole neighbourhoods."""
        scores: Tensor = self.head(self.layers.over_graph(self.reduction(compact(x)), edge_index))
        return scores

    def forward_tree(
        self, x: Features, tree: Sequence[Tensor], generator: torch.Generator | None = None
    ) -> Tensor:
        """Class scores ``[b, classes]`` of the centres of sampled ego-graphs.

        The reduction layer, and its dropout, is computed once for each distinct node.

        Args:
            x: all features, as :meth:`prepared` gives them, or as they are.
            tree: node ids ``[b]``, ``[b, f1]``, ``[b, f1, f2]``; -1 where there is no neighbour.
            generator: draws the dropout; without a generator nothing is dropped.
        """
        distinct, place = torch.unique(torch.cat([level.flatten() for level in tree]), return_inverse=True)
        parts = place.split([level.numel() for level in tree])
        rows = self.reduction(chosen(x, distinct.clamp(min=0)))
        rows = dropped(rows, self.dropout if self.training else 0.0, generator)
        if int(distinct[0]) < 0:
            rows = rows * (distinct >= 0).unsqueeze(1)
        places = [part.view(level.shape) for part, level in zip(parts, tree, strict=True)]
        scores: Tensor = self.head(self.layers.over_tree(rows, places))
        return scores

    def prepared(self, x: Tensor) -> Features:
        """Features as :meth:`forward_tree` multiplies them fastest; made once for many batches."""
        return compact(x)

    def embedded(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """What a mash averages: every node's reduced features ``[nodes, width]``."""
        reduced: Tensor = self.reduction(compact(x))
        return reduced

    def centre(self, values: Tensor) -> Tensor:
        """The centre's embedding of ego-graphs or mashes ``[b, positions, width]``."""
        return self.layers.over_positions(values, self.fanout)

    def forward_mash(self, values: Tensor) -> Tensor:
        """Class scores ``[b, classes]`` at the centre of mashes ``[b, positions, width]``."""
        scores: Tensor = self.head(self.centre(values))
        return scores

    def initialise(self, seed: int) -> None:
        """Kaiming-normal matrices and zero biases, from a seed."""
        generator = torch.Generator().manual_seed(seed)
        for p in self.parameters():
            if p.dim() == 2:
                # a reduction's matrix is stored transposed, compared with a linear layer's
                mode: Literal["fan_in", "fan_out"] = "fan_out" if p is self.reduction.weight else "fan_in"
                nn.init.kaiming_normal_(p, mode=mode, generator=generator)
            else:
                nn.init.zeros_(p)
