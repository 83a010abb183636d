"""A2: one training node's features and its neighbours' mean, from the step of the first layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations, product

import numpy as np

from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.weights.updates import ALL, STOPS
from secure_fedgraph.protocol import View

SINGLE = "training node"
_OWN, _NEIGHBOUR, _BIAS = "layers.0.own.weight", "layers.0.neighbour.weight", "layers.0.bias"
CLOSE = 1e-4
"""Two units' rows, or two columns, count as equal within this share of the largest entry."""
MOST = 4
"""Sums of more owners' single nodes than this are not separated."""

_ONE_STEP = {
    "rounds": 1,
    "training.optimizer": "sgd",
    "training.learning_rate": 1.0,
    "training.batch": "full",
    "training.share": 1e-9,
}


class SingleSample(Attack):
    """A2: the features of the only node that a step was taken on, and the mean of its sampled neighbours'.

    Unit k of the first layer has the weight gradient ``g_k x'`` and the bias gradient ``g_k``, so their ratio
    is ``x``. GraphSAGE's two halves keep the node and its neighbours apart: the ratio is ``x_v`` in the one
    and the neighbours' mean in the other. With more layers the sampled neighbours go through the first layer
    too; then units at which ReLU lets only one of them through still agree on one row, and the attack returns
    the row that most units agree on.

    In a sum of several owners' single nodes the columns of the weight step are sums of the owners' ``g``. A
    word that only one owner has shows its ``g`` alone. The few distinct columns are tried until the ``g``
    explain all columns and add up to the step of the bias.

    References:
        Phong et al. 2018 and Geiping et al. 2020 for the ratio of one linear layer.
    """

    id = "a2-single-sample"
    title = "the features of the one node that a step was taken on, and its neighbours' mean"
    subject = "features of a node trained on alone"
    family = "weights"
    summary = "features of the only node of a step, and its neighbours' mean"
    channel = "update"
    first_rounds = 1
    cost = "one division"
    stops = STOPS
    controls = (
        Control("one training node", {**_ONE_STEP, "training.fanout": [5], "training.hidden": [64]}),
        Control("one training node under two layers", _ONE_STEP),
    )

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """``[2, words]`` of each owner: the node, the mean of its neighbours."""
        uploads = self.single_uploads(view)
        first = min(seen.round for seen in uploads)
        used = [seen for seen in uploads if seen.round == first]
        values = {seen.clients[0]: np.stack([_ratio(w, b) for w, b in _halves(seen.values)]) for seen in used}
        return Guess(SINGLE, values, {s.clients[0]: s.clients for s in used}, len(used))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """``[owners, words]``: the owners' nodes, in no order; NaN where they cannot be separated."""
        seen = min(self.opened_sums(view), key=lambda s: s.round)
        own, _ = _halves(seen.values)
        return Guess(SINGLE, {ALL: _separated(*own, len(seen.clients))}, {ALL: seen.clients}, 1)


def _halves(values: Mapping[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The step of each half of the first layer: ``[units, words]`` and ``[units]``."""
    if not {_OWN, _NEIGHBOUR, _BIAS} <= values.keys():
        raise Blind("a2-single-sample: the update is of no GraphSAGE layer with a bias")
    bias = np.asarray(values[_BIAS], dtype=np.float64)
    weights = [np.asarray(values[name], dtype=np.float64) for name in (_OWN, _NEIGHBOUR)]
    return list(zip(weights, np.split(bias, [len(weights[0])]), strict=True))


def _ratio(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The row that most units agree on, weighed by their bias steps; zeros where no unit moved."""
    moved = np.abs(bias) > 1e-3 * np.abs(bias).max(initial=0.0)
    if not moved.any():
        return np.zeros(weight.shape[1])
    rows = weight[moved] / bias[moved, None]
    scale = max(np.median(np.abs(rows).max(1)), 1e-30)
    alike = np.abs(rows[:, None] - rows[None]).max(2) <= CLOSE * scale
    chosen = alike[np.lexsort((-np.abs(bias[moved]), -alike.sum(1)))[0]]
    used = bias[moved] * chosen
    row: np.ndarray = used @ weight[moved] / np.square(used).sum()
    return row


def _separated(weight: np.ndarray, bias: np.ndarray, owners: int) -> np.ndarray:
    """``[owners, words]``: the 0/1 rows ``x_o`` in ``weight = sum_o g_o x_o'``; NaN if none fit."""
    words = weight.shape[1]
    nothing = np.full((owners, words), np.nan)
    scale = np.abs(weight).max(initial=0.0)
    used = np.flatnonzero(np.abs(weight).max(0) > CLOSE * scale)
    if owners > MOST or not len(used):
        return nothing
    columns = weight[:, used].T
    distinct, place = _distinct(columns, CLOSE * scale)
    if not owners <= len(distinct) <= 2**owners:
        return nothing
    patterns = np.array(list(product([0.0, 1.0], repeat=owners)))
    for chosen in combinations(range(len(distinct)), owners):
        steps = distinct[list(chosen)]
        if np.abs(steps.sum(0) - bias).max() > math.sqrt(owners) * CLOSE * scale:
            continue
        apart = np.abs(distinct[:, None] - (patterns @ steps)[None]).max(2)
        if (apart.min(1) <= owners * CLOSE * scale).all():
            rows = np.zeros((owners, words))
            rows[:, used] = patterns[apart.argmin(1)][place].T
            return rows
    return nothing


def _distinct(columns: np.ndarray, near: float) -> tuple[np.ndarray, np.ndarray]:
    """The different columns, and for each column which of them it is."""
    different: list[np.ndarray] = []
    place = np.full(len(columns), -1)
    while (place < 0).any() and len(different) <= 2**MOST:
        first = columns[np.argmax(place < 0)]
        place[(place < 0) & (np.abs(columns - first).max(1) <= near)] = len(different)
        different.append(first)
    return np.stack(different), np.maximum(place, 0)
