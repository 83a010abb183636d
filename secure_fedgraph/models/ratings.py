"""Link prediction on ratings: what a user would give a product."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.models.molecules import Convolution, GraphConvolution
from secure_fedgraph.models.parameters import blank_linear

BUCKETS = 16
PRIOR = (1.0, 5.0)
"""Weights, in numbers of ratings, that pull the mean of a user or a product to the owner's mean."""
HABITS = 2 * (len(PRIOR) + 1) + 1


class RatingNet(nn.Module):
    """The score of a pair: the owner's mean, plus ``z_user · z_product``, plus a term of their habits.

    ``z`` comes from convolutions over the training ratings' links; a node's features are its side and its
    number of training ratings, by powers of two. Habits are the user's and the product's
    mean deviation and number of training ratings (:func:`habit_features`), through a dense layer that all
    owners learn together: how far to trust a mean of few ratings does not depend on the owner.

    Args:
        hidden: widths of the convolutions.
        convolution: ``gcn``, ``gat`` or ``sage``.
        use_habits: False for FedGraphNN's ``z_user · z_product`` alone.

    References:
        He et al., FedGraphNN, 2021: the dot product and the convolutions. Its "degree" gives every node the
        same feature; here it is the degree.
    """

    def __init__(
        self, hidden: Sequence[int] = (32, 32), convolution: Convolution = "gcn", use_habits: bool = True
    ) -> None:
        super().__init__()
        widths = [2 * BUCKETS, *hidden]
        self.layers = nn.ModuleList(
            GraphConvolution(convolution, width_in, width_out)
            for width_in, width_out in itertools.pairwise(widths)
        )
        self.offset = nn.Parameter(torch.zeros(1))
        self.use_habits = use_habits
        if use_habits:
            self.inner: nn.Module = blank_linear(HABITS, hidden[-1])
            self.outer: nn.Module = blank_linear(hidden[-1], 1)
            self.direct: nn.Module = blank_linear(HABITS, 1)

    def forward(self, graph: Data, chosen: Tensor) -> Tensor:
        """Scores of some of the owner's ratings, ``[n]``.

        Only training ratings are read, without the chosen rating itself where that is a training rating.

        Args:
            graph: the owner's, as ``graph.by_category`` makes it.
            chosen: ``[n]`` places in ``edge_index``.
        """
        users, products = graph.edge_index[:, chosen]
        z = self._embedded(graph)
        scores = (z[users] * z[products]).sum(1) + self.offset + centre(graph)
        if self.use_habits:
            pair_habits = habit_features(graph, chosen)
            scores = scores + (
                self.outer(F.relu(self.inner(pair_habits))) + self.direct(pair_habits)
            ).squeeze(1)
        return scores

    def _embedded(self, graph: Data) -> Tensor:
        links = graph.edge_index[:, graph.train_mask]
        both = torch.cat([links, links.flip(0)], dim=1)
        x = self._inputs(graph, links)
        for depth, layer in enumerate(self.layers):
            x = layer(x, both, None)
            if depth < len(self.layers) - 1:
                x = F.relu(x)
        return x

    def _inputs(self, graph: Data, links: Tensor) -> Tensor:
        nodes = int(graph.num_nodes or 0)
        degree = torch.bincount(links.flatten(), minlength=nodes)
        bucket = (degree + 1).double().log2().long().clamp(max=BUCKETS - 1)
        side = (torch.arange(nodes) >= graph.users).long()
        return F.one_hot(bucket + BUCKETS * side, 2 * BUCKETS).float()


def centre(graph: Data) -> Tensor:
    """The mean of the owner's training ratings."""
    level: Tensor = graph.rating[graph.train_mask].mean()
    return level


def habit_features(graph: Data, chosen: Tensor) -> Tensor:
    """``[n, HABITS]``: what the owner's other training ratings say about each pair's user and product.

    For each side: its mean deviation from the owner's mean, pulled to 0 by each of :data:`PRIOR`, and the
    logarithm of its number of ratings. Then the owner's median less its mean. A chosen training rating is
    left out of its own two sums, because it would give the model the answer.
    """
    training = graph.rating[graph.train_mask]
    mean = training.mean()
    deviation = (graph.rating - mean) * graph.train_mask
    counted = graph.train_mask.float()
    columns = []
    for side in graph.edge_index:
        zeros = torch.zeros(int(graph.num_nodes or 0))
        total, number = zeros.index_add(0, side, deviation), zeros.index_add(0, side, counted)
        others = total[side[chosen]] - deviation[chosen]
        count = number[side[chosen]] - counted[chosen]
        columns += [others / (count + prior) for prior in PRIOR] + [torch.log1p(count)]
    columns.append((training.median() - mean).expand(len(chosen)))
    return torch.stack(columns, dim=1)
