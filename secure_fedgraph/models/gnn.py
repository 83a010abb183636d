"""GraphSAGE with the mean aggregator, on sampled trees and on whole neighbourhoods."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.parameters import blank_linear
from secure_fedgraph.models.sparse_rows import Features, chosen, compact_of


def _level_sizes(positions: int, depth: int) -> list[int]:
    """How many positions each level of a tree has: ``1, f, f**2, ...`` that sum to all of them."""
    for fanout in range(1, positions):
        sizes = [fanout**level for level in range(depth + 1)]
        if sum(sizes) == positions:
            return sizes
    raise BadInput(f"{positions} positions are no tree of {depth} levels")


FEW = 0.03
"""Share of non-zeros up to which the first layer multiplies by them; above, dense products are faster."""
AT_ONCE = 2**17
"""Nodes whose layer is computed at once where no gradient is wanted."""
SHORT = 1e-6
"""Rows shorter than this are not normalised."""


class SageLayer(nn.Module):
    """One GraphSAGE layer: half of its output sees the node itself, the other half its neighbours' mean.

    ``[W_self x_v, W_neighbour mean_{u in N(v)} x_u] + b``. The matrices are applied before the mean, which
    is the same and lets a batch share the product of a node that occurs often.

    Args:
        inputs: width of the input.
        outputs: width of the output, even.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        if outputs % 2:
            raise BadInput(f"hidden width {outputs} is odd: a GraphSAGE layer has two equal halves")
        self.own = blank_linear(inputs, outputs // 2, bias=False)
        self.neighbour = blank_linear(inputs, outputs // 2, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def halves(self, x: Features) -> tuple[torch.Tensor, torch.Tensor]:
        """Each row's own half, and what it sends to the nodes that it is a neighbour of."""
        if isinstance(x, torch.Tensor):
            return self.own(x), self.neighbour(x)
        own, neighbour = x.linear(torch.cat([self.own.weight, self.neighbour.weight])).chunk(2, dim=1)
        return own, neighbour

    def join(self, own: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
        """Both halves, with the bias."""
        return torch.cat([own, neighbours], dim=-1) + self.bias


class GraphSage(nn.Module):
    """Two or more SAGE layers, L2 normalisation, and a dense layer of class scores.

    ReLU after every layer but the last. Means are over the neighbours that are there; a node without any has
    the zero vector in their place, in every layer.

    Args:
        features: width of ``x``.
        classes: number of classes.
        hidden: layer widths, each even.

    References:
        Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017; sizes of
        Zhang et al., Subgraph Federated Learning with Missing Neighbor Generation, NeurIPS 2021.

    >>> GraphSage(4, 2)(torch.ones(3, 4), torch.tensor([[0], [1]])).shape
    torch.Size([3, 2])
    """

    def __init__(self, features: int, classes: int, hidden: Sequence[int] = (64, 32)) -> None:
        super().__init__()
        widths = [features, *hidden]
        self.layers = nn.ModuleList(map(SageLayer, widths[:-1], widths[1:]))
        self.head: nn.Module = blank_linear(widths[-1], classes)

    @property
    def hops(self) -> int:
        """How far a node's prediction looks."""
        return len(self.layers)

    @property
    def _sage(self) -> list[SageLayer]:
        return cast(list[SageLayer], list(self.layers))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Class scores of every node, from whole neighbourhoods.

        Args:
            x: features ``[nodes, features]``.
            edge_index: ``[2, edges]``, from source to target.

        Returns:
            Scores ``[nodes, classes]``.
        """
        # a trace (export) needs operations that depend on no value
        traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if not (torch.is_grad_enabled() or traced):
            return self._from_sums(x, NeighbourTable.of(edge_index, len(x)))
        source, target = edge_index
        degree = torch.bincount(target, minlength=x.shape[0]).clamp(min=1).unsqueeze(1)
        for depth, layer in enumerate(self._sage):
            messages = layer.neighbour(x)
            summed = torch.zeros_like(messages).index_add_(0, target, messages[source])
            x = self._activate(layer.join(layer.own(x), summed / degree), depth)
        return self._scores(x)

    def _from_sums(self, x: torch.Tensor, table: NeighbourTable) -> torch.Tensor:
        """The same without gradients: some nodes at a time, and never a row a link."""
        nodes = len(x)
        parts = [slice(start, start + AT_ONCE) for start in range(0, nodes, AT_ONCE)] or [slice(0, 0)]
        degree = table.degree.clamp(min=1).unsqueeze(1)
        rows = self.prepared(x)
        for depth, layer in enumerate(self._sage):
            if isinstance(rows, SparseMatrix):
                own, messages = layer.halves(rows)
            else:
                own, messages = None, layer.neighbour(x)
            made = messages.new_empty(nodes, 2 * messages.shape[1])
            for part in parts:
                mean = table.sums(messages, part) / degree[part]
                mine = layer.own(x[part]) if own is None else own[part]
                made[part] = self._activate(layer.join(mine, mean), depth)
            rows = x = made
        return torch.cat([self._scores(x[part]) for part in parts])

    def prepared(self, x: torch.Tensor) -> Features:
        """Features as :meth:`forward_tree` multiplies them fastest."""
        return compact_of(x, FEW)

    def forward_tree(self, x: Features, tree: Sequence[torch.Tensor]) -> torch.Tensor:
        """Class scores of the nodes at the root of a sampled tree.

        Args:
            x: features ``[nodes, features]``, as :meth:`prepared` gives them or as they are.
            tree: node ids ``[b]``, ``[b, f1]``, ``[b, f1, f2]``; -1 where there is no neighbour, and no mean
                counts it.

        Returns:
            Scores ``[b, classes]``.
        """
        distinct, place = torch.unique(torch.cat([level.reshape(-1) for level in tree]), return_inverse=True)
        places = place.split([level.numel() for level in tree])
        first, *later = self._sage
        own, neighbour = first.halves(chosen(x, distinct.clamp(min=0)))
        filled = None
        if int(distinct[0]) < 0:
            filled = [(level >= 0).unsqueeze(-1) for level in tree]
            present = (distinct >= 0).unsqueeze(1)
            own, neighbour = own * present, neighbour * present

        def mean(messages: torch.Tensor, level: int) -> torch.Tensor:
            if filled is None:
                return messages.mean(-2)
            return messages.sum(-2) / filled[level].sum(-2).clamp(min=1)

        def made(
            layer: SageLayer, depth: int, level: int, own: torch.Tensor, mean: torch.Tensor
        ) -> torch.Tensor:
            rows = self._activate(layer.join(own, mean), depth)
            # a bias would give a node that is missing a row of its own
            return rows if filled is None else rows * filled[level]

        levels = [
            made(
                first,
                0,
                i,
                own[places[i]].view(*level.shape, -1),
                mean(neighbour[places[i + 1]].view(*tree[i + 1].shape, -1), i + 1),
            )
            for i, level in enumerate(tree[:-1])
        ]
        for depth, layer in enumerate(later, start=1):
            levels = [
                made(layer, depth, i, layer.own(here), mean(layer.neighbour(below), i + 1))
                for i, (here, below) in enumerate(pairwise(levels))
            ]
        return self._scores(levels[0])

    def forward_positions(self, values: torch.Tensor, filled: torch.Tensor) -> torch.Tensor:
        """Class scores of the roots of trees of one shape, each from its own positions alone.

        Means are over the filled positions. With ``f`` neighbours a node, position ``j`` has the children
        ``f j + 1 .. f j + f``.

        Args:
            values: ``[b, positions, features]``, zero at empty positions.
            filled: ``[b, positions]`` true at filled positions.

        Returns:
            Scores ``[b, classes]``.
        """
        sizes = _level_sizes(values.shape[1], len(self.layers))
        levels, present = list(values.split(sizes, 1)), list(filled.split(sizes, 1))
        for depth, layer in enumerate(self._sage):
            made = []
            for i, (here, below) in enumerate(pairwise(levels)):
                count = present[i + 1].reshape(*here.shape[:2], -1).sum(2).clamp(min=1).unsqueeze(2)
                messages = layer.neighbour(below)
                mean = messages.reshape(*here.shape[:2], -1, messages.shape[-1]).sum(2) / count
                made.append(
                    self._activate(layer.join(layer.own(here), mean), depth) * present[i].unsqueeze(2)
                )
            levels = made
        return self._scores(levels[0][:, 0])

    def _activate(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        return F.relu(x) if depth < len(self.layers) - 1 else x

    def _scores(self, x: torch.Tensor) -> torch.Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        # a row of (nearly) zero length has no direction, and dividing by its length makes gradients explode
        scores: torch.Tensor = self.head(x / torch.where(length > SHORT, length, 1.0))
        return scores


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
