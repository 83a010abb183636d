"""One client's half of a graph network whose layers are split over owners of features and links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.layers import Links
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.parameters import glorot
from secure_fedgraph.models.sparse_rows import Features
from secure_fedgraph.models.vertical.residual import LayersRun, residual_layers, sparse_entry

Backbone = Literal["gcnii", "gcn", "gat", "residual"]
HEADS = 8
ALPHA, THETA = 0.1, 0.5
"""GCNII: the share of the first representation, and how fast layers turn into the identity."""
MU = 0.5
"""``residual``: the share of what a group of layers computes, halved, thirded, ... group by group."""
MOMENTUM = 0.1
"""``residual``: of the running statistics."""


@dataclass(frozen=True)
class Noise:
    """What is drawn in a forward pass in training. The same seed gives the same pass.

    Args:
        dropout: share of values dropped after every layer.
        seed: of the draws.
        settle: whether running statistics take note.
    """

    dropout: float = 0.0
    seed: int = 0
    settle: bool = True


def segments_of(layers: int, aggregated: Sequence[int]) -> tuple[range, ...]:
    """The layers between one aggregation and the next.

    >>> segments_of(4, (2, 4))
    (range(0, 2), range(2, 4))
    """
    ends = [0, *aggregated]
    if ends[-1] != layers:
        raise BadInput(f"aggregated layers {tuple(aggregated)} do not end with the last of {layers}")
    return tuple(range(start, stop) for start, stop in pairwise(ends))


def locally(aggregate: Tensor, stale: Tensor, fresh: Tensor, parties: int) -> Tensor:
    """Local aggregation: what the server would give if only this client's rows had changed since.

    Args:
        aggregate: the mean that the server gave, ``[rows, h]``.
        stale: this client's rows in it.
        fresh: its rows now; gradients flow through them only.
        parties: how many clients were aggregated.

    >>> locally(torch.tensor([[3.0]]), torch.tensor([[2.0]]), torch.tensor([[4.0]]), parties=2)
    tensor([[4.]])
    """
    return (aggregate - stale / parties) + fresh / parties


class Tower(nn.Module):
    """One client's layers: a dense entry, ``layers`` graph layers, a classifier.

    A segment takes what was aggregated last and gives what is aggregated next.

    Backbones:
        - ``gcn``: ``relu(A H W + b)``;
        - ``gat``: eight heads of attention over links and the node itself, ``relu``;
        - ``gcnii``: ``relu(((1 - a) A H + a H0) ((1 - b_l) I + b_l W))`` with this client's own first
          representation ``H0``, ``a = 0.1``, ``b_l = log(0.5 / l + 1)`` (Chen et al. 2020);
        - ``residual``: what GLASU's released code trains under the name of GCNII: layers of ``A H``, dense,
          ReLU, batch normalisation; around each segment ``m F(H) + (1 - m) H`` with ``m = 0.5 / (number of
          it)``; loops of weight 2.

    Args:
        features: this client's columns.
        classes: number of classes.
        hidden: width of every layer.
        segments: as :func:`segments_of` gives.
        backbone: one of the above.
        bound: values of a segment's rows are cut off there, so that a fixed-point grid can hold them.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        hidden: int,
        segments: tuple[range, ...],
        backbone: Backbone = "residual",
        bound: float = 8.0,
    ) -> None:
        super().__init__()
        self.backbone, self.segments, self.bound = backbone, segments, bound
        self.entry = nn.Linear(features, hidden)
        self.layers = nn.ModuleList(
            nn.Linear(hidden, hidden, bias=backbone != "gcnii") for _ in range(segments[-1].stop)
        )
        if backbone == "gat":
            attention = [nn.Parameter(torch.zeros(2 * HEADS, hidden // HEADS)) for _ in self.layers]
            self.attention = nn.ParameterList(attention)
        if backbone == "residual":
            self.norms = nn.ModuleList(nn.BatchNorm1d(hidden, momentum=MOMENTUM) for _ in self.layers)
        self.head = nn.Linear(hidden, classes)

    @property
    def loop(self) -> float:
        """The weight of a node's own row before normalisation."""
        return 2.0 if self.backbone == "residual" else 1.0

    def start(self, seed: int) -> None:
        """Glorot weights and zero biases from a seed; scales of normalisations are 1."""
        glorot(self, seed)
        if self.backbone == "residual":
            with torch.no_grad():
                for norm in self.norms:
                    cast(nn.BatchNorm1d, norm).weight.fill_(1.0)

    def segment(
        self, number: int, rows: Tensor | None, x: Features, links: Sequence[Links], noise: Noise
    ) -> Tensor:
        """One segment of layers, ``[outputs of the last link, hidden]``.

        Args:
            number: of the segment, from 0.
            rows: what was aggregated before it, on its input nodes; None for the first.
            x: this client's features of its input nodes.
            links: one a layer, in order.
            noise: in training; its dropout is 0 in evaluation.
        """
        layers = self.segments[number]
        first = self._first(x) if rows is None or self.backbone == "gcnii" else None
        h = cast(Tensor, first if rows is None else rows)
        if self.backbone == "residual" and self.training and all(len(one.own) > 1 for one in links):
            return self._residual(number, h, links, noise)
        before, kept_rows = h, torch.arange(len(h))
        generator = torch.Generator().manual_seed(noise.seed)
        for depth, between in zip(layers, links, strict=True):
            if first is not None and self.backbone == "gcnii":
                first = first.index_select(0, between.own)
            h = self._layer(depth, between, h, first, noise)
            if self.training and noise.dropout:
                scale = torch.rand(h.shape, generator=generator).ge_(noise.dropout)
                h = h * scale.div_(1 - noise.dropout)
            kept_rows = kept_rows[between.own]
        if self.backbone == "residual":
            h = torch.lerp(before.index_select(0, kept_rows), h, MU / (number + 1))
        return h.clamp(-self.bound, self.bound)

    def scores(self, rows: Tensor) -> Tensor:
        """Class scores of what was aggregated last."""
        scores: Tensor = self.head(rows)
        return scores

    def _first(self, x: Features) -> Tensor:
        """The first representation."""
        if isinstance(x, SparseMatrix):
            return sparse_entry(x, self.entry.weight, self.entry.bias)
        return F.relu(self.entry(x))

    def _residual(self, number: int, h: Tensor, links: Sequence[Links], noise: Noise) -> Tensor:
        """One segment of ``residual`` in training, where each layer has rows to measure."""
        statistics, parameters = list[tuple[Tensor | None, Tensor | None]](), list[Tensor]()
        for depth in self.segments[number]:
            dense, norm = cast(nn.Linear, self.layers[depth]), cast(nn.BatchNorm1d, self.norms[depth])
            statistics.append((norm.running_mean, norm.running_var) if noise.settle else (None, None))
            parameters += [dense.weight, dense.bias, norm.weight, norm.bias]
        run = LayersRun(links, statistics, MOMENTUM, noise.dropout, noise.seed, MU / (number + 1), self.bound)
        return residual_layers(h, run, parameters)

    def _layer(self, depth: int, links: Links, h: Tensor, first: Tensor | None, noise: Noise) -> Tensor:
        dense = self.layers[depth]
        if self.backbone == "gat":
            return F.relu(self._attend(depth, links, h))
        if self.backbone == "gcnii":
            mixed = (1 - ALPHA) * links.spread(h) + ALPHA * cast(Tensor, first)
            beta = math.log(THETA / (depth + 1) + 1)
            return F.relu((1 - beta) * mixed + beta * dense(mixed))
        # the narrower side is summed over
        h = F.relu(dense(links.spread(h)))
        if self.backbone == "residual":
            h = self._normalised(cast(nn.BatchNorm1d, self.norms[depth]), h, noise)
        return h

    def _normalised(self, norm: nn.BatchNorm1d, h: Tensor, noise: Noise) -> Tensor:
        measured = self.training and len(h) > 1
        return F.batch_norm(
            h,
            norm.running_mean if not measured or noise.settle else None,
            norm.running_var if not measured or noise.settle else None,
            norm.weight,
            norm.bias,
            training=measured,
            momentum=MOMENTUM,
        )

    def _attend(self, depth: int, links: Links, h: Tensor) -> Tensor:
        dense = cast(nn.Linear, self.layers[depth])
        values = (h @ dense.weight.T).view(len(h), HEADS, -1)
        ends = (values.unsqueeze(1) * self.attention[depth].view(2, HEADS, -1)).sum(-1)
        size = len(links.own)
        source = torch.cat([links.source, links.own])
        target = torch.cat([links.target, torch.arange(size)])
        logits = F.leaky_relu(ends[:, 0][source] + ends[links.own, 1][target], 0.2)
        highest = logits.new_full((size, HEADS), -torch.inf)
        highest = highest.scatter_reduce(0, target.unsqueeze(1).expand_as(logits), logits.detach(), "amax")
        weight = (logits - highest[target]).exp()
        total = weight.new_zeros(size, HEADS).index_add(0, target, weight)
        weight = weight / total[target]
        summed = values.new_zeros(size, *values.shape[1:]).index_add(
            0, target, weight.unsqueeze(2) * values[source]
        )
        return summed.flatten(1) + dense.bias
