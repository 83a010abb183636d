"""What one owner's data give by themselves: own experts together, or the best of a few linear models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import APPNP

from secure_fedgraph.graph import descriptors
from secure_fedgraph.graph.own import pairs
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import perceptron, personal, ridge
from secure_fedgraph.models.targets import ridge_targets, right

HOPS = (0, 2, 8)
"""How far links are read: means over so many are columns beside a node's own."""
RIDGES = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MOST_ITEMS = 1500
"""Records of which products with each other are taken, where there are more columns than that."""
WIDE = 300
"""Columns beyond which no network is tried, links are read less far, and each column keeps its own spread."""


class Alone:
    """The model that does best on an owner's own validation items, of those that its own data can train.

    Of classes of nodes with links it is what a personal model is without a released one
    (:mod:`secure_fedgraph.models.personal`). Of all else, and where columns are few, ridge regressions on an
    owner's columns, and on these with means over its links, and for classes a small network on the widest of
    them, are tried.

    Guarantees:
        - reads no label of a test item.

    Args:
        graph: the owner's own, with ``train_mask`` and ``val_mask``.
        schema: of the data.
    """

    def __init__(self, graph: Data, schema: Schema) -> None:
        self._schema, self._graph = schema, graph
        self._kept: tuple[str, int, Any] | None = None
        self._moments: tuple[Tensor, Tensor] | None = None
        self._personal: personal.Model = {}
        linked = schema.kind == "node" and (graph.edge_index.numel() or graph.x.shape[1] > WIDE)
        if linked and schema.task == Task.CLASSES:
            self._personal = personal.fit(graph, None, schema.classes)
            if graph.x.shape[1] > WIDE:
                return
        best = math.inf
        train = graph.train_mask.nonzero().flatten()
        held = graph.val_mask if bool(graph.val_mask.any()) else graph.train_mask
        if schema.task == Task.LINKS:  # validation rows are right links alone: some of both kinds choose
            train, held = train[torch.arange(len(train)) % 4 > 0], train[::4]
        if not len(train):
            return
        if self._personal:
            best = self._loss(personal.scores(self._personal, self._experts(graph), None), graph, held)
        hops: tuple[int, ...] = HOPS if schema.kind == "node" and graph.edge_index.numel() else HOPS[:1]
        hops = hops[:2] if schema.features > WIDE else hops
        for hop in hops:
            z = self._columns(graph, hop, fit=hop == hops[0])
            for weights in _regressions(z[train], ridge_targets(graph.y[train], schema, 1.0)):
                loss = self._loss(self._regressed(z @ weights), graph, held)
                if loss < best:
                    best, self._kept = loss, ("ridge", hop, weights)
        if schema.task in (Task.CLASSES, Task.LINK_CLASSES) and z.shape[1] <= WIDE:
            read = F.normalize(z, dim=1)
            layers = perceptron.fit(read, graph.y, graph.train_mask, graph.val_mask, schema.classes)
            if self._loss(perceptron.scores(layers, read), graph, held) < best:
                self._kept = "network", hops[-1], layers

    def outputs(self, graph: Data) -> Tensor | None:
        """What it says of a graph's items, ``[n, outputs]``; None where an owner could train nothing.

        Of links that are there or not, scores among wrong ones: ``[n, 1 + wrong]``.
        """
        if self._kept is None and len(self._personal.get(personal.ALONE, ())):
            return personal.scores(self._personal, self._experts(graph), None)
        if self._kept is None:
            return None
        if self._schema.task == Task.LINKS:
            return pairs.ranked(self._said, graph, self._schema)
        return self._said(graph)

    def _experts(self, graph: Data) -> list[Tensor]:
        if graph is self._graph:
            return personal.experts(graph, self._schema.classes)[1]
        return personal.believed(self._personal, personal.Smoothed(graph), own=False)

    def _said(self, graph: Data) -> Tensor:
        assert self._kept is not None
        kind, hop, weights = self._kept
        z = self._columns(graph, hop)
        if kind == "network":
            return perceptron.scores(weights, F.normalize(z, dim=1))
        return self._regressed(z @ weights)

    def _columns(self, graph: Data, hop: int, fit: bool = False) -> Tensor:
        """Columns and means over links, by the owner's own mean and spread, and a constant."""
        if self._schema.kind == "graph":
            x = descriptors.descriptors(graph, self._schema)
        else:
            x = ridge.records(graph.x) if graph.x.shape[1] > MOST_ITEMS else torch.nan_to_num(graph.x.float())
        if fit:
            own = x[graph.train_mask]
            spread = own.std(dim=0) if len(own) > 1 else torch.ones(x.shape[1])
            wide = x.shape[1] > WIDE
            self._moments = own.mean(dim=0), torch.ones_like(spread) if wide else spread.clamp(min=1e-3)
        assert self._moments is not None
        x = ((x - self._moments[0]) / self._moments[1]).clamp(-5, 5)
        blocks, mean = [x], APPNP(1, 0.0)
        block = x
        for step in range(1, hop + 1):
            block = mean(block, graph.edge_index)
            if step in HOPS:
                blocks.append(block)
        return torch.cat([torch.ones(len(x), 1), *blocks], dim=1)

    def _regressed(self, scores: Tensor) -> Tensor:
        if self._schema.task in (Task.NUMBER, Task.LABELS):
            return ridge.outputs(scores, 1.0, self._schema.task == Task.LABELS)
        if self._schema.task == Task.LINKS:
            return ridge.margins(scores, 1.0)
        return ridge.as_shares(scores, 1.0)

    def _loss(self, outputs: Tensor, graph: Data, held: Tensor) -> float:
        """Cross entropy of classes and links; of what else is learned, how wrong it is."""
        said, y = outputs[held], graph.y[held]
        if self._schema.task not in (Task.NUMBER, Task.LABELS):
            return float(F.cross_entropy(said, y))
        return float(1 - right(said, y, self._schema).mean())


def _regressions(z: Tensor, targets: Tensor) -> Iterator[Tensor]:
    """Weights ``[width, outputs]`` for each size of the ridge, beside the mean square of a column."""
    if len(z) > MOST_ITEMS < z.shape[1]:  # evenly spread over the owner's order, so nothing is random
        kept = torch.linspace(0, len(z) - 1, MOST_ITEMS).long()
        z, targets = z[kept], targets[kept]
    usual = float(z.square().sum(dtype=torch.float64)) / max(min(z.shape), 1)
    return ridge.regressions(z, targets, [size * usual * 0.1 + 1e-9 for size in RIDGES])
