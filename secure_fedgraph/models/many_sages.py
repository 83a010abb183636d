"""Several GraphSAGE networks of one shape, each on its own owner's graph, in products of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.models.gnn import SHORT, GraphSage


class ManySages:
    """The first ``c`` of several networks, as one function of a matrix with a row of weights a network.

    Guarantees:
        - scores of one network depend on its own weights, features and trees alone.

    Args:
        model: any of them, for its shape.
        features: of each owner's nodes, ``[n, features]`` each.
    """

    def __init__(self, model: GraphSage, features: Sequence[Tensor]) -> None:
        self.shapes = [parameter.shape for parameter in model.parameters()]
        self._names = [name for name, _ in model.named_parameters()]
        self._sizes = [shape.numel() for shape in self.shapes]
        self._depth = model.hops
        nodes = max(map(len, features))
        self.x = features[0].new_zeros(len(features), nodes, features[0].shape[1])
        for row, one in zip(self.x, features, strict=True):
            row[: len(one)] = one

    def parts(self, weights: Tensor) -> list[Tensor]:
        """Weights ``[c, all]`` as the parameters of the networks, ``[c, ...]`` each."""
        split = weights.split(self._sizes, dim=-1)
        return [one.unflatten(-1, shape) for one, shape in zip(split, self.shapes, strict=True)]

    def scores(self, weights: Tensor, trees: Sequence[Tensor]) -> Tensor:
        """Class scores of the roots of sampled trees, as :meth:`GraphSage.forward_tree` gives them.

        Args:
            weights: ``[c, all]``.
            trees: node ids ``[c, b]``, ``[c, b, f1]``, ...; -1 where there is no node.

        Returns:
            ``[c, b, classes]``.
        """
        many, nodes = len(weights), self.x.shape[1]
        of = dict(zip(self._names, self.parts(weights), strict=True))
        first = torch.arange(many).mul_(nodes)
        filled = [(tree >= 0).unsqueeze(-1) for tree in trees]
        places = [tree.clamp(min=0) + first.view(-1, *[1] * (tree.dim() - 1)) for tree in trees]

        def halves(rows: Tensor, depth: int) -> tuple[Tensor, Tensor]:
            kinds = (of[f"layers.{depth}.{half}.weight"] for half in ("own", "neighbour"))
            own, neighbour = (torch.bmm(rows.reshape(many, -1, rows.shape[-1]), w.mT) for w in kinds)
            return own.view(*rows.shape[:-1], -1), neighbour.view(*rows.shape[:-1], -1)

        def made(own: Tensor, messages: Tensor, level: int, depth: int) -> Tensor:
            """Rows of a level, from what its nodes and those below send; a missing node's are zero."""
            mean = messages.sum(-2) / filled[level + 1].sum(-2).clamp(min=1)
            bias = of[f"layers.{depth}.bias"].view(many, *[1] * (own.dim() - 2), -1)
            rows = torch.cat([own, mean], dim=-1) + bias
            return (F.relu(rows) if depth < self._depth - 1 else rows) * filled[level]

        own, neighbour = (half.flatten(0, 1) for half in halves(self.x[:many], 0))
        levels = [
            made(own[places[i]], neighbour[places[i + 1]] * filled[i + 1], i, 0)
            for i in range(len(trees) - 1)
        ]
        for depth in range(1, self._depth):
            both = [halves(rows, depth) for rows in levels]
            levels = [made(here[0], below[1], i, depth) for i, (here, below) in enumerate(pairwise(both))]
        x = levels[0]
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        x = x / torch.where(length > SHORT, length, 1.0)
        return torch.baddbmm(of["head.bias"].unsqueeze(1), x, of["head.weight"].mT)
