"""A3: every row of a batch, from the step of the first layer that is linear with a ReLU behind it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.sparse_rows import FEATURES, RowSpace, sparse_rows
from secure_fedgraph.attacks.weights.spans import span_of
from secure_fedgraph.attacks.weights.updates import ALL, STOPS
from secure_fedgraph.protocol import View

SECONDS = 30.0
"""Processor seconds of one search."""
FORWARD = 0.98
"""Share of the units at which a row must be active exactly where its gradient is not zero."""
SWAPS = 4
"""Passes over the vectors that are left, in place of the chosen ones."""
BINARY = 0.01
"""Rows whose values are this near to 0 or to the largest are taken for words."""
CHANNELS = ("update", "reduction")

_STEP = {
    "rounds": 1,
    "training.optimizer": "sgd",
    "training.learning_rate": 1.0,
    "training.epochs": 1,
}


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


class ReluBatch(Attack):
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
    title = "the features of all nodes that a step was taken on"
    subject = "features of a whole batch"
    family = "weights"
    summary = "every node's features, from the step of a first layer with a ReLU"
    channel = "update"
    also_reads = ("reduction",)
    first_rounds = 1
    depends_on = (
        "training.batch",
        "training.share",
        "training.optimizer",
        "training.hidden",
        "training.fanout",
    )
    cost = "up to a minute of search for each update"
    searches = True
    stops = STOPS
    controls = (_nodes(0.004, 64), _nodes(0.004, 256), _nodes(0.012, 256))

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """``[rank, words]`` of each owner's first update; NaN for nodes that were not recovered."""
        channel = _channel(view)
        uploads = view.uploads(channel) if channel else []
        if not uploads:
            raise Blind(f"{self.id}: {view.why_unreadable(channel or self.channel)}")
        first = min(seen.round for seen in uploads)
        return self._guess(view, channel, {s.clients[0]: s for s in uploads if s.round == first})

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The nodes of all owners, from the first opened sum: a larger batch, and nobody's in particular."""
        channel = _channel(view)
        sums = view.sums(channel) if channel else []
        if not sums:
            raise Blind(f"{self.id}: no sum of channel {channel or self.channel!r} was opened in this view")
        return self._guess(view, channel, {ALL: min(sums, key=lambda seen: seen.round)})

    def _guess(self, view: View, channel: str, updates: Mapping[str, Any]) -> Guess:
        values, stopped = {}, {}
        for target, seen in updates.items():
            asked = next((a.values for a in view.asked(channel) if a.round == seen.round), None)
            layer = first_layer(self.id, asked, seen.values, view.public["settings"], len(seen.clients))
            found = recover(layer, self.effort or SECONDS)
            values[target] = found.rows
            if found.stopped is not None:
                stopped[target] = round(found.stopped, 1)
        targets = {target: seen.clients for target, seen in updates.items()}
        return Guess(FEATURES, values, targets, len(updates), stopped)


def _channel(view: View) -> str:
    """The one that the run has, or nothing."""
    return next((name for name in CHANNELS if name in view.public["channels"]), "")


def first_layer(
    attack: str,
    asked: Mapping[str, Any] | None,
    update: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    contributors: int,
) -> FirstLayer:
    """The first layer of a network, units first, with the known weight decay taken off.

    Raises:
        Blind: for other networks.
    """
    if asked is None:
        raise Blind(f"{attack}: the view lacks the weights that were sent")
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


@dataclass(frozen=True)
class Found:
    """What was recovered.

    Attributes:
        rows: ``[rank, inputs]``, NaN where a row was not.
        stopped: the processor seconds that an incomplete search had run; None where it was complete, or
            there was nothing to search.
    """

    rows: np.ndarray = field(repr=False)
    stopped: float | None = None


def recover(layer: FirstLayer, seconds: float) -> Found:
    """The inputs of a layer, from its step.

    Args:
        seconds: processor seconds; half of them for each of the two searches, and for exchanging vectors.
    """
    start = time.thread_time()
    space, turned = _spaces(layer)
    rank = space.rank
    missing = np.full((rank, layer.step.shape[1]), np.nan)
    units, inputs = int(layer.step.any(1).sum()), int(layer.step.any(0).sum())
    if not rank or rank >= min(units, inputs):
        return Found(missing)  # every vector is in the space: nothing to search in
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
            return Found(rows)
    return Found(partly, time.thread_time() - start)


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
    following = float(values[rank]) if rank < len(values) else 0.0
    gap = float(values[rank - 1]) / max(following, 1e-300) if rank else 0.0
    rows, columns, size = (
        torch.from_numpy(np.ascontiguousarray(part))
        for part in (right[:rank].T, left[:, :rank], values[:rank])
    )
    return RowSpace(columns, size, rows, span.noise, gap), RowSpace(rows, size, columns, span.noise, gap)


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
    share: np.ndarray = (active == moved)[:, live].mean(1)
    return share


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


__all__ = ["CHANNELS", "FirstLayer", "Found", "ReluBatch", "first_layer", "recover"]
