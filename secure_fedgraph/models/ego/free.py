"""FedEgo without ego-graphs, an ablation of its paper: the aggregation moves into the shared part."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.models.ego.model import MeanLayers, Reduction, blank, distinct_nodes, dropped, kaiming
from secure_fedgraph.models.parameters import blank_linear
from secure_fedgraph.models.sparse_rows import Features, chosen, compact


class GraphReduction(nn.Module):
    """A reduction layer and mean-aggregator layers.

    Args:
        features: width of ``x``.
        width: of every layer.
        depth: aggregations.
    """

    def __init__(self, features: int, width: int, depth: int) -> None:
        super().__init__()
        self.words = Reduction(features, width)
        self.layers = MeanLayers(width, depth)


class EgoFree(nn.Module):
    """Reduction by a graph network, personalisation by a multilayer perceptron of the same depth.

    A mash holds the centres' embeddings only, so it has one position.

    Args:
        features, classes, width, fanout, dropout: as :class:`~secure_fedgraph.models.ego.model.EgoSage`'s.

    References:
        FedEgo, ACM TKDD, figure 4, "w/o EGO".
    """

    positions = 1

    def __init__(
        self,
        features: int,
        classes: int,
        width: int = 512,
        fanout: Sequence[int] = (6, 6),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.fanout = tuple(fanout)
        self.dropout = dropout
        self.reduction = GraphReduction(features, width, len(self.fanout))
        self.layers = nn.ModuleList(blank_linear(width, width) for _ in self.fanout)
        self.head: nn.Module = blank_linear(width, classes, bias=False)
        blank(self)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores ``[nodes, classes]``, from whole neighbourhoods."""
        return self._scores(self.embedded(x, edge_index))

    def forward_tree(
        self, x: Features, tree: Sequence[Tensor], generator: torch.Generator | None = None
    ) -> Tensor:
        """Class scores ``[b, classes]`` of the centres of sampled ego-graphs."""
        distinct, places = distinct_nodes(tree)
        rows = self.reduction.words(chosen(x, distinct.clamp(min=0))) * (distinct >= 0).unsqueeze(1)
        rows = dropped(rows, self.dropout if self.training else 0.0, generator)
        return self._scores(self.reduction.layers.over_tree(rows, places))

    def prepared(self, x: Tensor) -> Features:
        """Features as :meth:`forward_tree` multiplies them fastest."""
        return compact(x)

    def embedded(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """What a mash averages: every node's embedding ``[nodes, width]``."""
        return self.reduction.layers.over_graph(self.reduction.words(compact(x)), edge_index)

    def forward_mash(self, values: Tensor) -> Tensor:
        """Class scores ``[b, classes]`` of mixed embeddings ``[b, 1, width]``."""
        return self._scores(values[:, 0])

    def initialise(self, seed: int) -> None:
        """Kaiming-normal matrices and zero biases, from a seed."""
        kaiming(self, seed)

    def _scores(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        scores: Tensor = self.head(x)
        return scores
