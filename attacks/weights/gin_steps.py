"""One gradient step of a graph isomorphism network: its spans, and the embedding of every graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedgraph.attacks.attack import Blind
from secure_fedgraph.attacks.weights.relu_batch import EDGE, Span, span_of

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
        occurred: np.ndarray = np.logical_not((entries[:, moved <= 1e-4 * moved.max()] > 0).any(1))
        return occurred

    def entries(self, atoms: np.ndarray) -> np.ndarray:
        """One column for each value of each column: 1 where an atom has it."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        one_hot = np.zeros((len(atoms), sum(self.sizes)))
        np.put_along_axis(one_hot, atoms.astype(int) + starts, 1.0, axis=1)
        return one_hot

    def entered(self, atoms: np.ndarray) -> np.ndarray:
        """What the first layer makes of atoms, ``[n, width]``."""
        if TABLE in self.before:
            made: np.ndarray = self.entries(atoms) @ self.before[TABLE]
            return made
        made = atoms @ self.before[MATRIX].T + self.before[MATRIX_BIAS]
        return made

    def linear(self, layer: int, which: int, x: np.ndarray) -> np.ndarray:
        """What stands behind a linear layer of a convolution, 0 or 2, and its ReLU, ``[n, width]``."""
        name = f"convolutions.{layer}.nn.{which}"
        made: np.ndarray = np.maximum(x @ self.before[f"{name}.weight"].T + self.before[f"{name}.bias"], 0)
        return made


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
    near: np.ndarray = off <= 0.05
    return near


def _apart(z: np.ndarray, weights: np.ndarray, graphs: int) -> np.ndarray:
    """Different embeddings, the one with the largest factor first: its errors are the smallest."""
    kept: list[np.ndarray] = []
    for row in z[np.argsort(-weights)]:
        if all(np.abs(row - other).max() > 1e-2 * np.abs(other).max() for other in kept):
            kept.append(row)
    return np.stack(kept[: 4 * graphs]) if kept else np.zeros((0, z.shape[1]))
