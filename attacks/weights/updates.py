"""Attacks on weight updates: the vocabulary that training touched, and the labels it was done with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.parameters import load
from secure_fedgraph.protocol import View

VOCABULARY = "vocabulary"
LABEL_SHARES = "label shares"
ALL = "all owners together"
_CLIP, _PART = "clip of the round", 0.95  # of algorithms.training.adaptive_clip, not imported
STOPS = {"server": "masked, homomorphic (single owners); local_dp (all), which costs accuracy"}


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
    title = "which words each owner's nodes hold"
    subject = "vocabulary"
    family = "weights"
    summary = "an owner's words, from the columns of the first layer that moved"
    channel = "update"
    cost = "one pass over the updates"
    stops = STOPS

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


class LabelCounts(Attack):
    """A4: how many training nodes of each class an owner has.

    The gradient of the last bias under cross entropy is the mean prediction less the class shares, so
    ``shares = mean softmax + bias step / learning rate``. The mean prediction is estimated by running the
    broadcast model on dummy nodes whose words are drawn by how far their columns moved. It is known exactly
    where the head starts at zero. One full-batch SGD step gives the gradient; an epoch of Adam does not.

    References:
        Label leakage from gradients: Geng et al. 2021; Wainakh et al. (LLG), PETS 2022.
    """

    id = "a4-label-counts"
    title = "how many training labels of each class an owner has"
    subject = "numbers of training nodes by class"
    family = "weights"
    summary = "an owner's number of training nodes by class, from the step of the last bias"
    channel = "update"
    grants = ("the optimiser's kind and rate, which the server itself set",)
    cost = "one forward pass on 600 dummy nodes"
    stops = STOPS
    controls = (
        Control(
            "one full step",
            {
                "rounds": 1,
                "training.batch": "full",
                "training.optimizer": "sgd",
                "training.head": "zeros",
            },
        ),
    )

    dummies = 600

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Estimated class shares of each owner, from its first upload."""
        uploads = self.single_uploads(view)
        first = min(seen.round for seen in uploads)
        used = [seen for seen in uploads if seen.round == first]
        values = {seen.clients[0]: self._shares(view, seen.values, first, 1) for seen in used}
        return Guess(LABEL_SHARES, values, {s.clients[0]: s.clients for s in used}, len(used))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The mean of all contributors' class shares, from the first opened sum."""
        seen = min(self.opened_sums(view), key=lambda s: s.round)
        shares = self._shares(view, seen.values, seen.round, len(seen.clients))
        return Guess(LABEL_SHARES, {ALL: shares}, {ALL: seen.clients}, 1)

    def _shares(
        self, view: View, values: Mapping[str, np.ndarray], round: int, contributors: int
    ) -> np.ndarray:
        settings = view.public["settings"]
        before = next((seen.values for seen in view.asked(self.channel) if seen.round == round), None)
        if before is None or "head.bias" not in values:
            raise Blind(f"{self.id}: the view lacks the broadcast model or a classifier's bias")
        step = np.asarray(values["head.bias"], dtype=np.float64) / contributors * update_unit(before)
        estimate: np.ndarray = self._mean_prediction(view, before, values) + step / settings["learning_rate"]
        return estimate

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
    lengths: np.ndarray = np.sqrt(sum(np.square(m, dtype=np.float64).sum(0) for m in matrices))
    return lengths
