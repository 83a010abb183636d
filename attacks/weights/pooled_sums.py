"""The embedding of every graph of a batch, from the step of the layer that reads them."""

from __future__ import annotations

import numpy as np

from secure_fedgraph.attacks.weights.gin_steps import BETWEEN, HEAD, GinStep
from secure_fedgraph.attacks.weights.spans import EDGE, span_of

MOST = 32
"""Batches of more graphs are not taken apart."""
SURELY = 20.0
"""Sums over nodes are long and differ much: a direction counts from this many times the errors' size."""
SHORT = 0.05
"""Units whose weight towards the answer is this share of the median or less are left out."""


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
    near: np.ndarray = off <= 0.05
    return near


def _apart(z: np.ndarray, weights: np.ndarray, graphs: int) -> np.ndarray:
    """Different embeddings, the one with the largest factor first: its errors are the smallest."""
    kept: list[np.ndarray] = []
    for row in z[np.argsort(-weights)]:
        if all(np.abs(row - other).max() > 1e-2 * np.abs(other).max() for other in kept):
            kept.append(row)
    return np.stack(kept[: 4 * graphs]) if kept else np.zeros((0, z.shape[1]))
