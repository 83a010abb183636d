"""A1, A2 and A4: the words, the one node and the labels that a weight update was trained with."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from secure_fedgraph.attacks.attack import ALL, Attack, Blind, Control, Guess, Knowledge, OfFirstUpdate
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.parameters import load
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

VOCABULARY, LABEL_SHARES, SINGLE = "vocabulary", "label shares", "training node"
_CLIP, _PART = "clip of the round", 0.95  # of algorithms.training.adaptive_clip, not imported
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


class VocabularySupport(Attack):
    """A1: which words (non-zero feature columns) an owner's nodes hold.

    A column of the first layer moves if and only if a node used in training has a value in it. That holds for
    any optimiser without weight decay, Adam included, and any number of local steps, because a weight that
    has never had a gradient does not move. The sum of several owners' updates moves in the union.

    References:
        The support of a linear layer's gradient; Per-Element Secure Aggregation (2025) for its form under
        secure aggregation.
    """

    id = "a1-vocabulary-support"
    subject = "vocabulary"
    family = "weights"
    summary = "an owner's words, from the columns of the first layer that moved"
    channel = "update"
    stops = OfFirstUpdate.stops

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores for each owner and word: how far the word's column moved, all rounds together."""
        uploads = self.single_uploads(view)
        return self._guess(
            view, ((seen.clients[0], seen.clients, seen.values) for seen in uploads), len(uploads)
        )

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores for each word over all contributors."""
        sums = self.opened_sums(view)
        return self._guess(view, ((ALL, seen.clients, seen.values) for seen in sums), len(sums))

    def _guess(
        self,
        view: View,
        updates: Iterable[tuple[str, tuple[str, ...], Mapping[str, np.ndarray]]],
        messages: int,
    ) -> Guess:
        words = view.public["schema"]["features"]
        scores: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(words))
        targets: dict[str, tuple[str, ...]] = {}
        for target, owners, values in updates:
            scores[target] += _column_movement(values, words)
            targets[target] = tuple(dict.fromkeys((*targets.get(target, ()), *owners)))
        return Guess(VOCABULARY, dict(scores), targets, messages)


class SingleSample(OfFirstUpdate):
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
    subject = "features of a node trained on alone"
    summary = "features of the only node of a step, and its neighbours' mean"
    about = SINGLE
    controls = (
        Control("one training node", {**_ONE_STEP, "training.fanout": [5], "training.hidden": [64]}),
        Control("one training node under two layers", _ONE_STEP),
    )

    def read(self, view: View, knowledge: Knowledge, seen: Seen) -> np.ndarray:
        """Of an owner ``[2, words]``, the node and the mean of its neighbours; of a sum ``[owners, words]``.

        The nodes of a sum are in no order, and NaN where they cannot be separated.
        """
        own, neighbour = _halves(seen.values)
        if len(seen.clients) > 1:
            return _separated(*own, len(seen.clients))
        return np.stack([_ratio(*own), _ratio(*neighbour)])


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
    return np.asarray(used @ weight[moved] / np.square(used).sum())


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


class LabelCounts(OfFirstUpdate):
    """A4: how many training nodes of each class an owner has.

    The gradient of the last bias under cross entropy is the mean prediction less the class shares, so
    ``shares = mean softmax + bias step / learning rate``. The mean prediction is estimated by running the
    broadcast model on dummy nodes whose words are drawn by how far their columns moved. It is known exactly
    where the head starts at zero. One full-batch SGD step gives the gradient; an epoch of Adam does not.

    References:
        Label leakage from gradients: Geng et al. 2021; Wainakh et al. (LLG), PETS 2022.
    """

    id = "a4-label-counts"
    subject = "numbers of training nodes by class"
    summary = "an owner's number of training nodes by class, from the step of the last bias"
    about = LABEL_SHARES
    grants = ("the optimiser's kind and rate, which the server itself set",)
    controls = (
        Control(
            "one full step",
            {"rounds": 1, "training.batch": "full", "training.optimizer": "sgd", "training.head": "zeros"},
        ),
    )

    dummies = 600

    def read(self, view: View, knowledge: Knowledge, seen: Seen) -> np.ndarray:
        """Estimated class shares: of an owner, or the mean of all contributors'."""
        asked = view.asked(self.channel)
        before = next((one.values for one in asked if one.round == seen.round), None)
        if before is None or "head.bias" not in seen.values:
            raise Blind(f"{self.id}: the view lacks the broadcast model or a classifier's bias")
        step = np.asarray(seen.values["head.bias"], dtype=np.float64) / len(seen.clients)
        step = step * update_unit(before) / view.public["settings"]["learning_rate"]
        return np.asarray(self._mean_prediction(view, before, seen.values) + step)

    def _mean_prediction(
        self, view: View, before: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        schema, hidden = view.public["schema"], view.public["settings"]["hidden"]
        if not isinstance(hidden, Sequence):
            raise Blind(f"{self.id}: mean predictions are estimated for GraphSAGE, and this is another model")
        model = GraphSage(schema["features"], schema["classes"], hidden)
        own = dict(model.named_parameters())  # a clip may travel with them
        load(model, {name: torch.tensor(value) for name, value in before.items() if name in own})
        weights = torch.tensor(_column_movement(values, schema["features"]))
        if not weights.any():
            weights = torch.ones_like(weights)
        generator = torch.Generator().manual_seed(0)
        words = torch.multinomial(weights.expand(self.dummies, -1), 20, replacement=True, generator=generator)
        x = torch.zeros(self.dummies, schema["features"]).scatter_(1, words, 1.0)
        tree = [torch.arange(self.dummies)]
        for _ in range(model.hops):
            tree.append(torch.randint(0, self.dummies, (*tree[-1].shape, 5), generator=generator))
        with torch.no_grad():
            return F.softmax(model.forward_tree(x, tree), dim=1).mean(0).double().numpy()


def update_unit(broadcast: Mapping[str, Any]) -> float:
    """The unit of uploads: follows from the broadcast clip where clips are adaptive, 1 otherwise."""
    return float(broadcast[_CLIP]) / _PART if _CLIP in broadcast else 1.0


def _column_movement(values: Mapping[str, Any], words: int) -> np.ndarray:
    """How far each input column moved: the norm over the first layer's matrices ``[outputs, words]``."""
    matrices = [np.asarray(v) for v in values.values() if v.ndim == 2 and v.shape[1] == words]
    if not matrices:
        raise Blind("the update has no layer that reads the features")
    return np.asarray(np.sqrt(sum(np.square(m, dtype=np.float64).sum(0) for m in matrices)))
