"""A model of an owner's own beside a released one: what it costs is nothing, for nothing leaves the owner."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import APPNP

from secure_fedgraph.models import perceptron, ridge
from secure_fedgraph.models.finite import LBFGS

HOPS = (0, 2)
"""Ridge regressions of the owner's own: on features, and on features beside means over one and two links."""
RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SHARPNESS = 8.0
WEIGHTS, ALONE, OWN, NETWORK = "weights", "alone", "own.", "network."
"""The tensors of a personal model: the weight of each expert, the released one first; the weights of the own
ones where there is no other; own regressions; and the layers of an own network."""
MOST_NODES, MOST_VALUES = 4096, 2**28
"""Training nodes of a regression in more dimensions than nodes, and values of its features."""
_FLOOR = math.log(1e-5)
_CLOSE = 1.0
"""How many validation nodes' worth of belief stands behind the weights that experts have by themselves."""
_FEW = 30
"""Validation nodes that set those weights: more of them would leave the best expert all of it."""

Model = dict[str, Tensor]


class Smoothed:
    """A graph's features as own models read them: made once, however many models read them.

    Args:
        graph: with ``x`` and ``edge_index``; an owner's own has ``y`` and ``train_mask`` too.
    """

    def __init__(self, graph: Data) -> None:
        self.graph = graph
        self._features: dict[int, Tensor] = {}

    def features(self, hops: int) -> Tensor:
        """Features and means over links up to so many hops, ``[n, (hops + 1) * width]``, of length 1."""
        if hops not in self._features:
            blocks, mean = [ridge.records(self.graph.x)], APPNP(1, 0.0)
            for _ in range(hops):
                blocks.append(mean(blocks[-1], self.graph.edge_index))
            together = torch.cat([F.normalize(block, dim=1) for block in blocks], dim=1)
            self._features[hops] = together / math.sqrt(len(blocks))
        return self._features[hops]


def fit(graph: Data, released: Tensor, classes: int, sure: bool = False) -> Model:
    """A personal model: own regressions, and weights under which own validation nodes are most likely.

    The model multiplies what several experts believe about a node: the released model, own ridge regressions
    and an own network on features and their means over links. Every choice is made by the owner's training
    and validation nodes.

    Guarantees:
        - reads no label of a test node.

    Args:
        graph: the owner's own, with ``train_mask`` and ``val_mask``.
        released: scores of the released model on it, ``[n, classes]``; their softmax is what it believes.
        classes: how many there are.
        sure: whether the released model is left out where own validation nodes are not likelier with it by
            more than one standard error.

    Returns:
        ``weights`` ``[experts]``, ``alone`` ``[experts - 1]``; ``own.0`` and ``own.2`` ``[width, classes]``;
        ``network.2.0`` to ``network.2.3``, of :func:`secure_fedgraph.models.perceptron.fit`.

    References:
        Wolpert, Stacked generalization, Neural Networks 1992; Breiman et al., Classification and Regression
        Trees, 1984, section 3.4 (one standard error).
    """
    model: Model = {}
    smoothed = Smoothed(graph)
    beliefs = [_belief(released)]
    if bool(graph.train_mask.any()):
        fitting = [hops for hops in HOPS if not hops or graph.x.numel() * (hops + 1) <= MOST_VALUES]
        for hops in fitting:
            model[OWN + str(hops)], belief = _regression(graph, smoothed.features(hops), classes)
            beliefs.append(belief)
        read = smoothed.features(fitting[-1])
        layers = perceptron.fit(read, graph.y, graph.train_mask, graph.val_mask, classes)
        model |= {f"{NETWORK}{fitting[-1]}.{i}": layer for i, layer in enumerate(layers)}
        beliefs.append(_belief(perceptron.scores(layers, read)))
    held, y = [one[graph.val_mask] for one in beliefs], graph.y[graph.val_mask]
    alone = _weights(held[1:], y) if model else torch.zeros(0)
    weights = _weights(held, y)
    if sure and model and not _is_likelier(held, weights, alone, y):
        weights = torch.cat([torch.zeros(1), alone])
    return {WEIGHTS: weights, ALONE: alone, **model}


def scores(model: Model, smoothed: Smoothed, released: Tensor | None, own: bool) -> Tensor:
    """What a personal model believes about a graph.

    Args:
        model: of :func:`fit`.
        smoothed: any graph with the same features.
        released: scores of the released model on it, ``[n, classes]``; None for what the owner believes
            without it.
        own: whether it is the owner's own graph, whose training labels it knows.

    Returns:
        Logarithms, ``[n, classes]``, not normalised.
    """
    beliefs = [] if released is None else [_belief(released)]
    for name, weights in model.items():
        if name.startswith(OWN):
            given = smoothed.features(int(name.removeprefix(OWN))) @ weights.float()
            beliefs.append(_spread(given, smoothed.graph, own))
    layers = {name: layer for name, layer in model.items() if name.startswith(NETWORK)}
    if layers:
        hops = int(next(iter(layers)).removeprefix(NETWORK).split(".")[0])
        beliefs.append(_belief(perceptron.scores(list(layers.values()), smoothed.features(hops))))
    weight = model[WEIGHTS if released is not None else ALONE]
    parts = [float(w) * belief for w, belief in zip(weight, beliefs, strict=True)]
    return torch.stack(parts).sum(0)


def _belief(given: Tensor) -> Tensor:
    return F.log_softmax(torch.nan_to_num(given.float()), dim=1).clamp(min=_FLOOR)


def _spread(given: Tensor, graph: Data, own: bool) -> Tensor:
    known = None
    if own:
        nodes = graph.train_mask.nonzero().flatten()
        known = (nodes, graph.y[nodes])
    return _belief(ridge.spread(given.float(), graph.edge_index, sharpness=SHARPNESS, known=known))


def _regression(graph: Data, features: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The ridge regression under which own validation nodes are most likely, and what it believes."""
    nodes = graph.train_mask.nonzero().flatten()
    wide = features.shape[1] > len(nodes) or features.shape[1] > MOST_NODES
    if wide and len(nodes) > MOST_NODES:  # evenly spread over the owner's order, so nothing is random
        nodes = nodes[torch.linspace(0, len(nodes) - 1, MOST_NODES).long()]
    targets = ridge.targets(graph.y[nodes], classes, 1.0)
    best: tuple[float, Tensor, Tensor] | None = None
    for weights in ridge.regressions(features[nodes], targets, RIDGES):
        belief = _spread(features @ weights, graph, own=True)
        loss = _loss(belief[graph.val_mask], graph.y[graph.val_mask])
        if best is None or loss < best[0]:
            best = (loss, weights, belief)
    assert best is not None
    return best[1], best[2]


def _loss(belief: Tensor, y: Tensor) -> float:
    return float(F.cross_entropy(belief, y)) if len(y) else 0.0


def _is_likelier(beliefs: list[Tensor], weights: Tensor, alone: Tensor, y: Tensor) -> bool:
    """Whether answers are likelier with the first expert than without, by more than one standard error."""
    together = torch.stack(beliefs)
    losses = [
        F.cross_entropy((w[:, None, None] * experts).sum(0), y, reduction="none")
        for w, experts in ((weights, together), (alone, together[1:]))
    ]
    gain = losses[1] - losses[0]
    return len(y) > 1 and bool(gain.mean() > gain.std() / math.sqrt(len(y)))


def _weights(beliefs: list[Tensor], y: Tensor) -> Tensor:
    """One weight an expert, not negative: the same for all where there is no validation node.

    Few validation nodes leave an expert the weight that it has by itself (its share of the likelihood); many
    find how experts go together.
    """
    together = torch.stack(beliefs).double()
    if not len(y):
        return torch.full((len(beliefs),), 1 / len(beliefs))
    each = torch.stack([F.cross_entropy(one, y) for one in together])
    alone = torch.softmax(-min(len(y), _FEW) * each, dim=0)
    weights = alone.clone().requires_grad_()
    steps = LBFGS([weights], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> float:
        steps.zero_grad()
        size = weights.abs()
        value = F.cross_entropy((size[:, None, None] * together).sum(0), y)
        value = value + _CLOSE / len(y) * (size - alone).square().sum()
        value.backward()
        return float(value.detach())

    steps.step(loss)
    return weights.detach().abs().float()
