"""A model of an owner's own beside a released one: what it costs is nothing, for nothing leaves the owner."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models import perceptron, ridge
from secure_fedgraph.models.finite import LBFGS
from secure_fedgraph.models.sparse_rows import Features, compact, product

HOPS = (16, 2, 0)
"""Ridge regressions of the owner's own: on features, and on features beside means over so many links."""
READ = (0, 1, 2, 8, 16)
"""The hops whose means are features, of those up to an expert's."""
NETWORK_HOPS = 2
"""How many an own network reads at most."""
RIDGES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
SHARPNESS = 8.0
WEIGHTS, ALONE, OWN, NETWORK, MEAN, SPREAD = "weights", "alone", "own.", "network.", "mean", "spread"
"""The tensors of a personal model: the weight of each expert, the released one first; the weights of the own
ones where there is no other; own regressions; the layers of an own network; and where columns are few, their
mean and spread at the owner."""
WIDE = 300
"""Columns beyond which none is scaled by its own spread."""
MOST_VALUES = 2**28
"""Values of the features that a regression may read."""
MOST_READ, DIRECTIONS = 3072, 256
"""Features that are made, and an own network reads; of more it reads mixtures of those that vary most."""
_FLOOR = math.log(1e-5)
_CLOSE = 1.0
"""How many validation nodes' worth of belief stands behind the weights that experts have by themselves."""
_FEW = 30
"""Validation nodes that set those weights: more of them would leave the best expert all of it."""
TOGETHER = 2**18
"""Rows, over all models, that models believe about together."""
_BLOCK = 256
"""Columns that are smoothed at a time, for lengths."""
_PARTS, _SPARED = 3, 12
"""Models of :func:`by_parts`, and the labels that it needs to spare a part of them."""
_STEPS, _SMALL = 50, 1e-3
"""Steps of a regression at most, and the share of the targets below which what is left is nothing."""

Model = dict[str, Tensor]
MOST_KEPT = 2**27
"""Numbers of own experts that are kept: those of a thousand small owners, or of a hundred large ones."""
_KEPT: dict[bytes, tuple[Model, list[Tensor]]] = {}
"""Digest of an owner's data -> its own experts, and what they believe about these."""


class Smoothed:
    """A graph's features as own models read them, however many do: products with them, without making them.

    Features are the graph's columns, and means of these over links up to so many hops, each of these of
    length 1 at a node: ``[n, blocks * width]``. Smoothing and weights are linear, so weights come first.

    Args:
        graph: with ``x`` and ``edge_index``; an owner's own has ``y`` and ``train_mask`` too.
        scale: the model whose mean and spread of columns are read; none where columns are read as they are.
    """

    def __init__(self, graph: Data, scale: Model | None = None) -> None:
        self.graph = graph
        self._scale = scale or {}
        self._found = list[Tensor]()
        self._rows: Features = torch.zeros(0)

    def as_read_by(self, model: Model) -> Smoothed:
        """The same graph by a model's own scale of columns."""
        return self if self._scale.get(MEAN) is model.get(MEAN) else Smoothed(self.graph, model)

    @property
    def width(self) -> int:
        """Numbers in a block."""
        return int(self.graph.x.shape[1]) + (MEAN in self._scale)

    def times(self, weights: Tensor, hops: int) -> Tensor:
        """Features ``[n, blocks * width]`` times weights, ``[n, outputs]``."""
        lengths, together = self._lengths(hops), torch.cat(weights.float().split(self.width), dim=1)
        parts = product(self._rows, together).split(weights.shape[1], dim=1)
        total = torch.zeros(())
        for part, length in zip(_travelled(parts, self.links, hops), lengths, strict=True):
            total = total + part / length
        return total

    def back(self, values: Tensor, hops: int) -> Tensor:
        """The transposed features times values ``[n, outputs]``: ``[blocks * width, outputs]``."""
        parts = [values / length for length in self._lengths(hops)]
        moved = torch.cat(_travelled(parts, self.links.transposed, hops), dim=1)
        rows = self._rows.transposed if isinstance(self._rows, SparseMatrix) else self._rows.T
        return torch.cat(product(rows, moved).split(values.shape[1], dim=1))

    def features(self, hops: int) -> Tensor:
        """The features themselves, where they are few enough to be made: ``[n, blocks * width]``."""
        lengths, blocks = self._lengths(hops), _blocks(hops)
        travelled, made = self._columns(), list[Tensor]()
        for step in range(blocks[-1] + 1):
            travelled = self.links.product(travelled) if step else travelled
            if step in blocks:
                made.append(travelled / lengths[len(made)])
        return torch.cat(made, dim=1)

    def _columns(self) -> Tensor:
        if MEAN not in self._scale:
            return ridge.records(self.graph.x)
        x = torch.nan_to_num(_strided(self.graph.x).float())
        return F.pad(((x - self._scale[MEAN]) / self._scale[SPREAD]).clamp(-5, 5), (1, 0), value=1.0)

    @cached_property
    def links(self) -> SparseMatrix:
        return ridge.means(self.graph.edge_index, len(self.graph.x))

    def _lengths(self, hops: int) -> list[Tensor]:
        """What each block of features is divided by at a node, ``[n, 1]`` each."""
        blocks = _blocks(hops)
        if len(self._found) < len(blocks):
            columns, squares = self._columns(), torch.zeros(len(blocks), len(self.graph.x), 1)
            self._rows = compact(columns)
            for block in columns.split(_BLOCK, dim=1):
                travelled = block.contiguous()
                for step in range(blocks[-1] + 1):
                    travelled = self.links.product(travelled) if step else travelled
                    if step in blocks:
                        squares[blocks.index(step)] += travelled.square().sum(dim=1, keepdim=True)
            self._found = list(squares.sqrt().clamp(min=1e-12))
        return [length * math.sqrt(len(blocks)) for length in self._found[: len(blocks)]]


def fit(graph: Data, released: Tensor | None, classes: int) -> Model:
    """A personal model: own regressions, and weights under which own validation nodes are most likely.

    The model multiplies what several experts believe about a node: the released model, own ridge regressions
    and an own network on features and their means over links. Every choice is made by the owner's training
    and validation nodes. The released model has a part only where validation nodes are likelier with it by
    more than one standard error and no fewer of them right, under weights that were found on others of them;
    fewer than 30 tell nothing.

    Guarantees:
        - reads no label of a test node.

    Args:
        graph: the owner's own, with ``train_mask`` and ``val_mask``.
        released: scores of the released model on it, ``[n, classes]``; their softmax is what it believes.
            None for what the owner does alone.
        classes: how many there are.

    Returns:
        ``weights`` ``[experts]``, ``alone`` ``[own experts]``; ``own.0``, ``own.2`` and ``own.16``
        ``[width, classes]``; ``network.2.0`` to ``network.2.3``, of
        :func:`secure_fedgraph.models.perceptron.fit`; with few columns ``mean`` and ``spread``.

    References:
        Wolpert, Stacked generalization, Neural Networks 1992; Breiman et al., Classification and Regression
        Trees, 1984, section 3.4 (one standard error).
    """
    model, own = experts(graph, classes)
    y = graph.y[graph.val_mask]
    held = [one[graph.val_mask] for one in own]
    weights = alone = _weights(held, y) if own else torch.zeros(0)
    if released is not None:
        held = [_belief(released)[graph.val_mask], *held]
        weights = _weights(held, y)
        if own and len(y) >= _FEW and not _is_likelier(held[1:], held, y):
            weights = torch.cat([torch.zeros(1), alone])
    return {WEIGHTS: weights, ALONE: alone, **{name: value.clone() for name, value in model.items()}}


def likelier(graph: Data, released: Tensor, other: Tensor, classes: int) -> Tensor:
    """The one of two scores of the released model that a personal model is fitted with, ``[n, classes]``.

    It is ``other`` if that makes own validation nodes likelier by more than one standard error, and no fewer
    of them right. Both are judged beside the own experts, under weights that were found on other validation
    nodes. With fewer than 30 of these it is ``released``.

    Args:
        graph, classes: as of :func:`fit`.
        released, other: ``[n, classes]`` each.
    """
    y, own = graph.y[graph.val_mask], experts(graph, classes)[1]
    first, second = ([one[graph.val_mask] for one in (_belief(s), *own)] for s in (released, other))
    return other if len(y) >= _FEW and _is_likelier(first, second, y) else released


def experts(graph: Data, classes: int) -> tuple[Model, list[Tensor]]:
    """The tensors of the own experts, and what they believe about the owner's graph, ``[n, classes]`` each.

    They are fitted once for the same data. Without a training node there is none.
    """
    about = _digest([graph[key] for key in ("x", "edge_index", "y", "train_mask", "val_mask")], classes)
    if about in _KEPT:
        return _KEPT[about]
    trained = bool(graph.train_mask.any())
    model = _scale(graph) if trained else {}
    smoothed = Smoothed(graph, model)
    if trained:
        fitting = [
            hops
            for hops in HOPS
            if not hops or (graph.edge_index.numel() and graph.x.numel() * (hops + 1) <= MOST_VALUES)
        ]
        for hops in fitting:
            model[OWN + str(hops)] = _regression(smoothed, hops, classes)
        hops = next(one for one in fitting if one <= NETWORK_HOPS)
        few = len(_blocks(hops)) * smoothed.width <= MOST_READ
        directions = None if few else _directions(smoothed, hops)
        read = smoothed.features(hops) if directions is None else smoothed.times(directions, hops)
        inner, *rest = perceptron.fit(read, graph.y, graph.train_mask, graph.val_mask, classes)
        layers = (inner if directions is None else directions @ inner, *rest)
        model |= {f"{NETWORK}{hops}.{i}": layer for i, layer in enumerate(layers)}
    made = model, believed(model, smoothed, own=True)
    _KEPT[about] = made
    while len(_KEPT) > 1 and sum(map(_numbers, _KEPT.values())) > MOST_KEPT:
        del _KEPT[next(iter(_KEPT))]
    return made


def _numbers(kept: tuple[Model, list[Tensor]]) -> int:
    model, beliefs = kept
    return sum(one.numel() for one in (*model.values(), *beliefs))


def _digest(values: Sequence[Tensor], classes: int) -> bytes:
    """A name for data: a client's graph is copied for some answers, and is the same data then."""
    digest = hashlib.sha256(str((classes, [(value.shape, value.dtype) for value in values])).encode())
    for value in values:
        known = _strided(value.detach()).contiguous()
        digest.update((known.float() if known.dtype == torch.bfloat16 else known).numpy().data)
    return digest.digest()


def by_parts(graph: Data, classes: int) -> Tensor:
    """What own experts believe where an owner has no validation nodes: means of shares, as logarithms.

    Three models are averaged. Each is trained without one third of the training nodes, which stand for its
    validation nodes. Fewer than 12 training nodes train one model, whose experts all count alike.

    Guarantees:
        - reads no label but those of training nodes.

    Args:
        graph: the owner's own, with ``train_mask``; a label below 0 is none.
        classes: how many there are.

    Returns:
        ``[n, classes]``; zeros without a training node.
    """
    nodes = (graph.train_mask & (graph.y >= 0)).nonzero().flatten()
    if not len(nodes):
        return torch.zeros(len(graph.x), classes)
    shuffled = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0))]
    shares = list[Tensor]()
    for part in shuffled.chunk(_PARTS) if len(nodes) >= _SPARED else (nodes[:0],):
        held, train = (torch.zeros_like(graph.train_mask) for _ in range(2))
        train[nodes], held[part] = True, True
        masks = {"train_mask": train & ~held, "val_mask": held}
        one = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, **masks)
        shares.append(scores(fit(one, None, classes), experts(one, classes)[1], None).softmax(1))
    return torch.stack(shares).mean(0).clamp(min=math.exp(_FLOOR)).log()


def at_a_glance(graph: Data, classes: int) -> Tensor:
    """What one regression on columns and means over up to two links believes, ``[n, classes]``."""
    smoothed, hops = Smoothed(graph, _scale(graph)), HOPS[1] if graph.edge_index.numel() else 0
    given = smoothed.times(next(_regressions(smoothed, hops, classes, (1.0,))), hops)
    return _spread(given, smoothed, own=True)


def believed(model: Model, smoothed: Smoothed, own: bool) -> list[Tensor]:
    """What the own experts of a personal model believe about a graph, for :func:`scores`.

    Args:
        model: of :func:`fit`.
        smoothed: any graph with the same features.
        own: whether it is the owner's own graph, whose training labels it knows.

    Returns:
        Logarithms, ``[n, classes]`` each.
    """
    return [one for (one,) in _believe([model], smoothed.as_read_by(model), own)]


def each_believes(models: Sequence[Model], smoothed: Smoothed) -> Iterator[list[Tensor]]:
    """:func:`believed` of several models about one graph: where columns are many, some at a time."""
    most = max(1, TOGETHER // max(1, len(smoothed.graph.x)))
    for keys, kin in groupby(models, key=dict.keys):
        alike, size = list(kin), 1 if MEAN in keys else most
        for some in (alike[at : at + size] for at in range(0, len(alike), size)):
            beliefs = list(_believe(some, smoothed.as_read_by(some[0]), own=False))
            yield from ([expert[i] for expert in beliefs] for i in range(len(some)))


def _believe(models: list[Model], smoothed: Smoothed, own: bool) -> Iterator[Sequence[Tensor]]:
    """What an expert of each model believes, expert by expert."""

    def products(name: str, kind: str) -> Tensor:
        hops = int(name.removeprefix(kind).split(".")[0])
        together = smoothed.times(torch.cat([one[name] for one in models], dim=1), hops)
        made: Tensor = together.unflatten(1, (len(models), -1))
        return made

    for name in (one for one in models[0] if one.startswith(OWN)):
        yield _spread(products(name, OWN), smoothed, own).unbind(1)
    layers = [one for one in models[0] if one.startswith(NETWORK)]
    if layers:
        inner, *rest = layers
        read = zip(products(inner, NETWORK).unbind(1), models, strict=True)
        made = (perceptron.scores_of_products(one, *(model[name] for name in rest)) for one, model in read)
        yield [_belief(one) for one in made]


def scores(model: Model, own: list[Tensor], released: Tensor | None) -> Tensor:
    """What a personal model believes about a graph.

    Args:
        model: of :func:`fit`.
        own: of :func:`believed`.
        released: scores of the released model on it, ``[n, classes]``; None for what the owner believes
            without it.

    Returns:
        Logarithms, ``[n, classes]``, not normalised.
    """
    beliefs = own if released is None else [_belief(released), *own]
    weight = model[WEIGHTS if released is not None else ALONE]
    parts = [float(w) * belief for w, belief in zip(weight, beliefs, strict=True)]
    return torch.stack(parts).sum(0)


def _scale(graph: Data) -> Model:
    """The mean and spread of training nodes' columns, where these are few."""
    if graph.x.shape[1] > WIDE:
        return {}
    own = torch.nan_to_num(_strided(graph.x).float())[graph.train_mask]
    spread = own.std(dim=0) if len(own) > 1 else torch.ones(own.shape[1])
    return {MEAN: own.mean(dim=0), SPREAD: spread.clamp(min=1e-3)}


def _strided(x: Tensor) -> Tensor:
    return x if x.layout == torch.strided else x.to_dense()


def _blocks(hops: int) -> tuple[int, ...]:
    return tuple(one for one in READ if one <= hops)


def _travelled(parts: Sequence[Tensor], links: SparseMatrix, hops: int) -> list[Tensor]:
    """One part a block, each as many steps over links as the block's means."""
    travelled, blocks = list(parts), _blocks(hops)
    for step in range(1, blocks[-1] + 1):
        first = next(i for i, block in enumerate(blocks) if block >= step)
        together = links.product(torch.cat(travelled[first:], dim=1))
        travelled[first:] = together.split(parts[0].shape[1], dim=1)
    return travelled


def _directions(smoothed: Smoothed, hops: int) -> Tensor:
    """About the longest directions of training nodes' features, ``[blocks * width, directions]``.

    References:
        Halko et al., Finding structure with randomness, SIAM Review 2011, algorithm 4.4.
    """
    width, mask = len(_blocks(hops)) * smoothed.width, smoothed.graph.train_mask
    random = torch.Generator().manual_seed(0)
    found = torch.randn(width, min(DIRECTIONS, int(mask.sum())), generator=random)
    for _ in range(2):
        found = torch.linalg.qr(smoothed.back(smoothed.times(found, hops) * mask[:, None], hops)).Q
    # turned at random: dropping the longest one of them would drop most of a node
    turned: Tensor = found @ torch.linalg.qr(torch.randn(found.shape[1], found.shape[1], generator=random)).Q
    return turned


def _belief(given: Tensor) -> Tensor:
    return F.log_softmax(torch.nan_to_num(given.float()), dim=-1).clamp(min=_FLOOR)


def _spread(given: Tensor, smoothed: Smoothed, own: bool) -> Tensor:
    known, graph = None, smoothed.graph
    if own:
        nodes = graph.train_mask.nonzero().flatten()
        known = (nodes, graph.y[nodes])
    return _belief(ridge.spread(given.float(), smoothed.links, sharpness=SHARPNESS, known=known))


def _regression(smoothed: Smoothed, hops: int, classes: int) -> Tensor:
    """The ridge regression under which own validation nodes are most likely, down to the first worse one."""
    graph, best, found = smoothed.graph, math.inf, torch.zeros(0)
    held = bool(graph.val_mask.any())
    for weights in _regressions(smoothed, hops, classes, RIDGES if held else (1.0,)):
        belief = _spread(smoothed.times(weights, hops), smoothed, own=True)
        loss = float(F.cross_entropy(belief[graph.val_mask], graph.y[graph.val_mask])) if held else 0.0
        if loss >= best:
            break
        best, found = loss, weights
    return found


def _regressions(smoothed: Smoothed, hops: int, classes: int, sizes: tuple[float, ...]) -> Iterator[Tensor]:
    """Weights for each size of the ridge, from the largest on: of many features by conjugate gradients."""
    train = smoothed.graph.train_mask
    wanted = torch.zeros(len(train), classes)
    wanted[train] = ridge.targets(smoothed.graph.y[train], classes, 1.0)
    sums = smoothed.back(wanted, hops)
    weights, enough = torch.zeros_like(sums), (_SMALL * sums.norm(dim=0)) ** 2
    if len(sums) <= MOST_READ:
        yield from ridge.regressions(smoothed.features(hops)[train], wanted[train], sizes)
        return
    for size in sizes:

        def moments(of: Tensor, size: float = size) -> Tensor:
            return smoothed.back(smoothed.times(of, hops) * train[:, None], hops) + size * of

        left = sums - moments(weights)
        step, squares = left, left.square().sum(0)
        for _ in range(_STEPS):
            if bool((squares <= enough).all()):
                break
            moved = moments(step)
            far = squares / (step * moved).sum(0).clamp(min=1e-30)
            weights, left = weights + far * step, left - far * moved
            before, squares = squares, left.square().sum(0)
            step = left + squares / before.clamp(min=1e-30) * step
        yield weights


def _is_likelier(others: list[Tensor], beliefs: list[Tensor], y: Tensor) -> bool:
    """Whether answers are likelier by one list of experts, by over one standard error, and no fewer right.

    Weights of either half of the answers are tried on the other: those that they were found on are likelier
    with every expert more.
    """
    shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    gains, more = list[Tensor](), 0
    for found, tried in (halves := shuffled.chunk(2), halves[::-1]):
        losses = []
        for sign, experts in ((-1, others), (1, beliefs)):
            weights = _weights([one[found] for one in experts], y[found])
            mixed = sum(w * one[tried] for w, one in zip(weights, experts, strict=True))
            losses.append(F.cross_entropy(mixed, y[tried], reduction="none"))
            more += sign * int((mixed.argmax(1) == y[tried]).sum())
        gains.append(losses[0] - losses[1])
    gain = torch.cat(gains)
    return more >= 0 and bool(gain.mean() > gain.std() / math.sqrt(len(gain)))


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
