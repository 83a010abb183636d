"""One gradient step of a graph isomorphism network: its spans, and the embedding of every graph."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from secure_fedgraph.attacks.attack import FEATURES, Blind, Control, Knowledge, OfFirstUpdate, Stopped
from secure_fedgraph.attacks.sparse_rows import RowSpace, sparse_rows
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

# A3: every row of a batch, from the step of the first layer that is linear with a ReLU behind it.

SECONDS = 30.0
"""Processor seconds of one search."""
FORWARD = 0.98
"""Share of the units at which a row must be active exactly where its gradient is not zero."""
SWAPS = 4
"""Passes over the vectors that are left, in place of the chosen ones."""
BINARY = 0.01
"""Rows whose values are this near to 0 or to the largest are taken for words."""
EDGE = 1.5
"""Singular values count from this many times the largest one that errors alone would have."""
NEAR = 4.0
"""A vector is in the space where it is this many times as far from it as errors explain, or nearer."""
LEAST = 1e-6
"""Share of a vector's length that single precision explains."""

_STEP = {"rounds": 1, "training.optimizer": "sgd", "training.learning_rate": 1.0, "training.epochs": 1}


def _nodes(share: float, width: int) -> Control:
    return Control(
        f"share {share:g} a step at width {width}",
        {**_STEP, "training.share": share, "training.batch": "full", "training.hidden": [width, 32]},
    )


@dataclass(frozen=True)
class FirstLayer:
    """The step of a layer ``y = ReLU(W x + b)``, and the layer before it.

    Attributes:
        step: ``[units, inputs]``; bias_step: ``[units]``.
        weight: ``[units, inputs]``; bias: ``[units]``.
    """

    step: np.ndarray = field(repr=False)
    bias_step: np.ndarray = field(repr=False)
    weight: np.ndarray = field(repr=False)
    bias: np.ndarray = field(repr=False)


class ReluBatch(OfFirstUpdate):
    """A3: the features of all nodes that a step was taken on, exactly.

    The step of ``W`` is a sum of outer products ``g_v x_v'`` over the nodes, so its rank is the number of
    nodes where the layer is wider. ReLU leaves half of every ``g_v`` zero. Vectors with so many zeros are
    rare in the column space; the step of the bias, the sum of the ``g_v``, gives their lengths, and then the
    ``x_v`` follow. Words are sparse themselves, so the same search is made in the row space first. Either
    result is checked forwards: ``W x_v + b`` must be positive where ``g_v`` is not zero and nowhere else.

    It reads GraphSAGE's half for the node itself, where a node stands for all its places, and FedEgo's
    reduction layer. Of a GIN the layers behind the first sum are read by A6.

    References:
        SPEAR: Dimitrov, Baader, Müller, Vechev, NeurIPS 2024; SPEAR++: Bakarsky, Dimitrov, Baader, Vechev,
        2025, for sparse dictionaries in place of sampling.
    """

    id = "a3-relu-batch"
    subject = "features of a whole batch"
    summary = "every node's features, from the step of a first layer with a ReLU"
    also_reads = ("reduction",)
    about = FEATURES
    depends_on = (
        "training.batch",
        "training.share",
        "training.optimizer",
        "training.hidden",
        "training.fanout",
    )
    searches = True
    controls = (_nodes(0.004, 64), _nodes(0.004, 256), _nodes(0.012, 256))

    def read(self, view: View, knowledge: Knowledge, seen: Seen) -> np.ndarray | Stopped:
        """``[rank, words]``; NaN for nodes that were not recovered. Of a sum nobody's in particular."""
        given = self.broadcast(view, seen)
        layer = first_layer(self.id, given, seen.values, view.public["settings"], len(seen.clients))
        return recover(layer, self.effort or SECONDS)


def first_layer(
    attack: str,
    asked: Mapping[str, Any],
    update: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    contributors: int,
) -> FirstLayer:
    """The first layer of a network, units first, with the known weight decay taken off.

    Raises:
        Blind: for other networks.
    """
    for weight, bias, turned in (
        ("layers.0.own.weight", "layers.0.bias", False),
        ("reduction.weight", "reduction.bias", True),
    ):
        if weight in update and weight in asked and bias in update and bias in asked:
            parts = [np.asarray(one[name], np.float64) for one in (update, asked) for name in (weight, bias)]
            step, bias_step, before, bias_before = parts
            if turned:
                step, before = step.T, before.T
            units = len(step)  # GraphSAGE's bias goes on with the neighbours' half
            bias_step, bias_before = bias_step[:units], bias_before[:units]
            decay = float(settings.get("weight_decay") or 0.0) if settings.get("optimizer") == "sgd" else 0.0
            known = contributors * float(settings.get("learning_rate") or 0.0) * decay
            return FirstLayer(step + known * before, bias_step + known * bias_before, before, bias_before)
    raise Blind(
        f"{attack}: the update has no first layer with a bias that reads the features of single nodes"
    )


def recover(layer: FirstLayer, seconds: float) -> np.ndarray | Stopped:
    """The inputs of a layer ``[rank, inputs]``, from its step; NaN where a row was not recovered.

    Args:
        seconds: processor seconds; half of them for each of the two searches, and for exchanging vectors.
    """
    start = time.thread_time()
    space, turned = _spaces(layer)
    rank = space.rank
    missing = np.full((rank, layer.step.shape[1]), np.nan)
    units, inputs = int(layer.step.any(1).sum()), int(layer.step.any(0).sum())
    if not rank or rank >= min(units, inputs):
        return missing  # every vector is in the space: nothing to search in
    partly = missing
    searches = [False, True] if inputs < layer.step.shape[1] else [True, False]  # words leave columns still
    for columns in searches:
        if columns:
            rows = _by_columns(layer, turned, seconds / 2)
        else:
            by_rows = (sparse_rows(space, seconds=seconds / 2) @ space.basis.T).numpy()
            partly[: len(by_rows)] = _words(by_rows)
            rows = _scaled_rows(layer, by_rows) if len(by_rows) == rank else None
        if rows is not None:
            return rows
    return Stopped(partly, time.thread_time() - start)


def _by_columns(layer: FirstLayer, space: RowSpace, seconds: float) -> np.ndarray | None:
    """Rows by the zeros of ReLU: from as many sparse vectors as there are rows, then from more."""
    deadline = time.thread_time() + seconds
    for most in (space.rank, 2 * space.rank):
        left = deadline - time.thread_time()
        if left <= 0:
            break
        found = sparse_rows(space, seconds=left / 2, search="kurtosis", signed=True, most=most)
        vectors = (found @ space.basis.T).numpy()
        rows = _from_columns(layer, space, vectors, deadline) if len(vectors) >= space.rank else None
        if rows is not None:
            return rows
    return None


def _spaces(layer: FirstLayer) -> tuple[RowSpace, RowSpace]:
    """The row space of the step, and its column space."""
    span = span_of(layer.step, layer.weight)
    left, values, right = np.linalg.svd(layer.step, full_matrices=False)
    rank = span.rank
    rows, columns, size = (
        torch.from_numpy(np.ascontiguousarray(part))
        for part in (right[:rank].T, left[:, :rank], values[:rank])
    )
    return RowSpace(columns, size, rows, span.noise), RowSpace(rows, size, columns, span.noise)


def _scaled_rows(layer: FirstLayer, directions: np.ndarray) -> np.ndarray | None:
    """Rows from their directions ``[rank, inputs]``; None where a row does not pass the forward check."""
    gradients = np.linalg.lstsq(directions.T, layer.step.T, rcond=None)[0]  # [rank, units], times the lengths
    inverse = np.linalg.lstsq(gradients.T, layer.bias_step, rcond=None)[0]
    if not np.all(np.abs(inverse) > 1e-12):
        return None
    rows = directions / inverse[:, None]
    return rows if np.all(_forward(layer, rows, gradients) >= FORWARD) or _sparse(rows) else None


def _sparse(rows: np.ndarray) -> bool:
    """Whether all rows are words: their zeros alone determine them, whatever stands behind the layer."""
    top = rows.max(1, keepdims=True)
    near = (np.abs(rows) <= BINARY * top) | (np.abs(rows - top) <= BINARY * top)
    return bool((top > 0).all() and near.all())


def _words(directions: np.ndarray) -> np.ndarray:
    """Words among directions whose lengths are not known; NaN for others."""
    rows = directions / np.maximum(directions.max(1, keepdims=True, initial=1e-300), 1e-300)
    near = ((np.abs(rows) <= BINARY) | (np.abs(rows - 1) <= BINARY)).all(1)
    return np.where(near[:, None], rows.round(), np.nan)


def _forward(layer: FirstLayer, rows: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """For each row the share of the units at which it is active where its gradient is not zero."""
    active = rows @ layer.weight.T + layer.bias > 0
    moved = np.abs(gradients) > 1e-3 * np.abs(gradients).max(1, keepdims=True)
    live = layer.step.any(1)
    return np.asarray((active == moved)[:, live].mean(1))


def _from_columns(
    layer: FirstLayer, space: RowSpace, vectors: np.ndarray, deadline: float
) -> np.ndarray | None:
    """Rows from sparse vectors of the column space ``[vectors, units]``, of which some may be differences.

    The chosen ones are exchanged for others as long as the forward check gets better, until the deadline.
    """
    rank = space.rank
    coordinates = vectors @ space.basis.numpy()
    order = np.argsort((np.abs(vectors) > 1e-6 * np.abs(vectors).max()).sum(1), kind="stable")
    chosen: list[int] = []
    for one in order.tolist():  # the sparsest first, each independent of those before it
        if np.linalg.matrix_rank(coordinates[[*chosen, one]], tol=1e-6) > len(chosen):
            chosen.append(one)
        if len(chosen) == rank:
            break
    if len(chosen) < rank:
        return None
    rows, score = _inverted(layer, vectors[chosen])
    for _ in range(SWAPS):
        if score.min() >= FORWARD:
            break
        before = score.sum()
        for place in np.argsort(score).tolist():
            for other in set(range(len(vectors))) - set(chosen):
                if time.thread_time() > deadline:
                    return rows if score.min() >= FORWARD else None
                tried = [*chosen[:place], other, *chosen[place + 1 :]]
                if np.linalg.matrix_rank(coordinates[tried], tol=1e-6) < rank:
                    continue
                new_rows, new = _inverted(layer, vectors[tried])
                if new.sum() > score.sum():
                    chosen, rows, score = tried, new_rows, new
        if score.sum() <= before:
            break
    return rows if score.min() >= FORWARD else None


def _inverted(layer: FirstLayer, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows ``[rank, inputs]`` of gradients with these directions, and what the forward check says of each."""
    lengths = np.linalg.lstsq(vectors.T, layer.bias_step, rcond=None)[0]
    gradients = vectors * lengths[:, None]
    if not np.all(np.abs(lengths) > 1e-300):
        return np.zeros((len(vectors), layer.step.shape[1])), np.zeros(len(vectors))
    rows = np.linalg.lstsq(gradients.T, layer.step, rcond=None)[0]
    return rows, _forward(layer, rows, gradients)


@dataclass(frozen=True)
class Span:
    """The row space of a step of a matrix ``[rows, columns]``.

    Attributes:
        basis: ``[columns, rank]`` orthonormal.
        values: ``[rank]`` singular values.
        noise: standard deviation of the error of one entry of the step.
    """

    basis: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    noise: float

    @property
    def rank(self) -> int:
        """How many independent inputs the layer had, at least."""
        return len(self.values)

    @property
    def full(self) -> bool:
        """Whether every vector is in it, so that it says nothing."""
        return self.rank >= len(self.basis)

    def far(self, vectors: np.ndarray) -> np.ndarray:
        """How far vectors ``[n, columns]`` are from the space, in multiples of what errors explain."""
        if self.full:
            return np.zeros(len(vectors))
        length = np.maximum(np.linalg.norm(vectors, axis=1), 1e-300)
        inside = vectors @ self.basis
        off = np.linalg.norm(vectors - inside @ self.basis.T, axis=1)
        # a vector is a combination of rows, each with its errors: as long as it takes
        errors = self.noise * np.linalg.norm(inside / self.values, axis=1)
        free = (len(self.basis) - self.rank) ** 0.5
        return np.asarray(off / (errors * free + LEAST * length))

    def holds(self, vectors: np.ndarray, share: float = 0.0) -> np.ndarray:
        """Which vectors ``[n, columns]`` are in the space, or off by this share of their length at most."""
        near: np.ndarray = self.far(vectors) <= NEAR
        if share:
            off = np.linalg.norm(vectors - vectors @ self.basis @ self.basis.T, axis=1)
            near |= off <= share * np.linalg.norm(vectors, axis=1)
        return near


def span_of(step: np.ndarray, before: np.ndarray, *, seen: bool = False) -> Span:
    """The row space of the step of a weight.

    Args:
        step: ``[rows, columns]`` how far the weight moved.
        before: ``[rows, columns]`` the weight that it moved from.
        seen: whether its errors are what the smallest singular values show (a grid, or noise); else those of
            single precision, in which weights are kept.
    """
    rows, columns = int(step.any(1).sum()), int(step.any(0).sum())  # a unit that never moved has no error
    _, values, right = np.linalg.svd(step, full_matrices=False)
    spacing = np.spacing(np.abs(before).astype(np.float32)).astype(np.float64)
    noise = 2 * float(np.sqrt(np.square(spacing).mean() / 12))
    small = min(rows, columns)
    if (
        seen and small > 8
    ):  # the fourth smallest of a square matrix of errors is 2 pi / sqrt(size) of their size
        noise = max(noise, float(values[small - 4]) * 0.16 * small**0.5)
    noise = max(noise, 1e-7 * float(np.sqrt(np.square(step).mean())), 1e-300)
    edge = EDGE * noise * (rows**0.5 + columns**0.5)
    rank = int((values > edge).sum())
    return Span(right[:rank].T, values[:rank], noise)


TABLE, MATRIX, MATRIX_BIAS = "reduce.table", "reduce.weight", "reduce.bias"
BETWEEN, HEAD = "between", "head"
MOST = 32
"""Batches of more graphs are not taken apart."""
SURELY = 20.0
"""Sums over nodes are long and differ much: a direction counts from this many times the errors' size."""
SHORT = 0.05
"""Units whose weight towards the answer is this share of the median or less are left out."""


@dataclass(frozen=True)
class GinStep:
    """The weights that were sent, and how far a step moved them.

    Attributes:
        before: name -> the weight that was sent, float64.
        step: name -> how far it moved, weight decay taken off.
        sizes: how many values each column of an atom can take; empty where the network reads numbers.
        seen: whether errors are estimated from the step itself, as :func:`relu_batch.span_of`.
    """

    before: Mapping[str, np.ndarray] = field(repr=False)
    step: Mapping[str, np.ndarray] = field(repr=False)
    sizes: tuple[int, ...]
    seen: bool = False
    spans: dict[str, Span] = field(default_factory=dict, repr=False)

    @property
    def layers(self) -> int:
        """How many convolutions."""
        return sum(name.endswith("nn.0.weight") for name in self.before)

    def span(self, name: str) -> Span:
        """The row space of a layer's step: what its inputs were combinations of."""
        if name not in self.spans:
            self.spans[name] = span_of(self.step[name], self.before[name], seen=self.seen)
        return self.spans[name]

    def kinds(self, atoms: np.ndarray, by_span: bool = True) -> np.ndarray:
        """Which rows ``[n, columns]`` of atoms can have been among the inputs of the first layer.

        A row space says more than which values occurred. It lacks some inputs where the atoms' gradients
        depend on each other: behind a sum over a node and its neighbours they do in every graph whose
        adjacency with loops is singular, such as a pair of atoms.

        Args:
            by_span: by the row space; else by the values that occurred alone.
        """
        if TABLE not in self.before:
            everything: np.ndarray = np.ones(len(atoms), dtype=bool)
            return self.span(MATRIX).holds(atoms) if by_span else everything
        entries = self.entries(atoms)
        if by_span:
            return span_of(self.step[TABLE].T, self.before[TABLE].T, seen=self.seen).holds(entries)
        moved = np.abs(self.step[TABLE]).max(1)
        return np.logical_not((entries[:, moved <= 1e-4 * moved.max()] > 0).any(1))

    def entries(self, atoms: np.ndarray) -> np.ndarray:
        """One column for each value of each column: 1 where an atom has it."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        one_hot = np.zeros((len(atoms), sum(self.sizes)))
        np.put_along_axis(one_hot, atoms.astype(int) + starts, 1.0, axis=1)
        return one_hot

    def entered(self, atoms: np.ndarray) -> np.ndarray:
        """What the first layer makes of atoms, ``[n, width]``."""
        if TABLE in self.before:
            return np.asarray(self.entries(atoms) @ self.before[TABLE])
        return np.asarray(atoms @ self.before[MATRIX].T + self.before[MATRIX_BIAS])

    def linear(self, layer: int, which: int, x: np.ndarray) -> np.ndarray:
        """What stands behind a linear layer of a convolution, 0 or 2, and its ReLU, ``[n, width]``."""
        name = f"convolutions.{layer}.nn.{which}"
        return np.asarray(np.maximum(x @ self.before[f"{name}.weight"].T + self.before[f"{name}.bias"], 0))


def read_step(
    attack: str,
    before: Mapping[str, Any],
    update: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    sizes: tuple[int, ...],
    contributors: int,
) -> GinStep:
    """A step, with the known weight decay taken off.

    Args:
        attack: who asks, for the reason why it is blind.
        before: what the clients were sent.
        update: what came back: of one, or the sum of several.
        settings: the algorithm's public settings.
        sizes: of the columns of atoms.
        contributors: how many updates it is the sum of.

    Raises:
        Blind: for the update of another network.
    """
    names = [name for name in before if name in update]
    layers = sum(name.endswith("nn.0.weight") for name in names)
    needed = {
        f"convolutions.{i}.nn.{j}.{p}" for i in range(layers) for j in (0, 2) for p in ("weight", "bias")
    }
    needed |= {f"{one}.{p}" for one in (BETWEEN, HEAD) for p in ("weight", "bias")}
    first = {TABLE} if TABLE in names else {MATRIX, MATRIX_BIAS}
    if not layers or not (needed | first) <= set(names):
        raise Blind(f"{attack}: the update is of no graph isomorphism network with sums as its readout")
    start = {name: np.asarray(before[name], dtype=np.float64) for name in names}
    rate, decay = (float(settings.get(key) or 0.0) for key in ("learning_rate", "weight_decay"))
    known = contributors * rate * decay if settings.get("optimizer", "sgd") == "sgd" else 0.0
    step = {name: np.asarray(update[name], dtype=np.float64) + known * start[name] for name in names}
    if TABLE in start and len(start[TABLE]) != sum(sizes):
        raise Blind(f"{attack}: the first layer has {len(start[TABLE])} values, and atoms {sum(sizes)}")
    return GinStep(start, step, sizes if TABLE in start else ())


def graphs_in(step: GinStep) -> int:
    """How many graphs with different embeddings the step was taken on, at least 1."""
    name = f"{BETWEEN}.weight"
    span = span_of(step.step[name], step.before[name], seen=True)
    edge = SURELY * span.noise * sum(step.step[name].shape) ** 0.5
    return max(1, int((span.values > edge).sum()))


def embeddings(step: GinStep) -> np.ndarray:
    """``[graphs, width]``: the sums over nodes that the layer after the convolutions read.

    The layer is linear with ReLU behind it, and a linear layer of two classes follows. So a unit k of graph b
    has the gradient ``c_b w_k`` where it is active, w being the difference of the classes' weights, which the
    server sent: the step's row k over w_k is the sum of ``c_b z_b`` over the graphs that are active there,
    and the bias's of ``c_b``. Rows, and differences of rows, that belong to one graph give its ``z``. That it
    is one is checked forwards: the units at which ``z`` is active must be a vector in the column space.

    Of a single graph every row is a multiple of ``z``, whatever the classes.
    """
    name = f"{BETWEEN}.weight"
    weight, bias = step.step[name], step.step[f"{BETWEEN}.bias"]
    graphs = graphs_in(step)
    if graphs == 1:
        length = float(bias @ bias)
        return (bias @ weight / length)[None] if length else np.zeros((0, weight.shape[1]))
    head = step.before[f"{HEAD}.weight"]
    if len(head) != 2 or graphs > MOST:
        return np.zeros((0, weight.shape[1]))
    towards = head[1] - head[0]
    noise = step.span(name).noise
    used = np.abs(towards) > SHORT * np.median(np.abs(towards))
    used &= np.linalg.norm(weight, axis=1) > EDGE * noise * weight.shape[1] ** 0.5
    rows, shares = weight[used] / towards[used, None], bias[used] / towards[used]
    candidates, factors = _differences(rows, shares)
    z = candidates / factors[:, None]
    active = z @ step.before[name].T + step.before[f"{BETWEEN}.bias"] > 0
    columns = np.linalg.svd(rows, full_matrices=False)[0][:, :graphs]
    sure = active[:, used].any(1) & (z > -1e-3 * np.abs(z).max(1, keepdims=True)).all(1)
    sure[sure] = _in(columns, active[sure][:, used])
    return _apart(z[sure], np.abs(factors[sure]), graphs)


def _differences(rows: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows, and all their differences, with the bias's beside them."""
    both = np.column_stack([rows, shares])
    size = np.abs(both).max()
    _, first = np.unique(np.round(both / size, 4), axis=0, return_index=True)
    both = both[first]
    left, right = np.triu_indices(len(both), 1)
    both = np.concatenate([both, both[left] - both[right]])
    kept = np.abs(both[:, -1]) > 1e-6 * np.abs(both[:, -1]).max(initial=1e-300)
    return both[kept, :-1], both[kept, -1]


def _in(basis: np.ndarray, masks: np.ndarray) -> np.ndarray:
    vectors = masks.astype(np.float64)
    off = np.linalg.norm(vectors - vectors @ basis @ basis.T, axis=1)
    return np.asarray(off <= 0.05)


def _apart(z: np.ndarray, weights: np.ndarray, graphs: int) -> np.ndarray:
    """Different embeddings, the one with the largest factor first: its errors are the smallest."""
    kept: list[np.ndarray] = []
    for row in z[np.argsort(-weights)]:
        if all(np.abs(row - other).max() > 1e-2 * np.abs(other).max() for other in kept):
            kept.append(row)
    return np.stack(kept[: 4 * graphs]) if kept else np.zeros((0, z.shape[1]))
