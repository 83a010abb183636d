"""A5: a malicious server broadcasts units that few nodes activate, and reads those nodes from the sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.attacks.active import disguised
from secure_fedgraph.attacks.active.oracle import COVERED
from secure_fedgraph.attacks.attack import ALL, SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.protocol import View
from secure_fedgraph.seams import RoundApi

OWN, NEIGHBOUR, BIAS = "layers.0.own.weight", "layers.0.neighbour.weight", "layers.0.bias"
WORDS = 2
"""How many words a unit asks for at first: few nodes have two given words."""
NEAR = 0.05
"""How far a word may be from 0 or 1 in a row that is taken for one node's."""
HEIGHT = 1.0
"""The weight of a planted word beside first weights: several times what a node's other words add up to."""
SLACK = 0.999
"""The share of a limit that is used: clients compute in other orders."""
_SGD = {"training.optimizer": "sgd", "training.learning_rate": 1.0}


class PlantedUnits(Attack):
    """A5: a planted unit is active only at nodes that have two chosen words, so at few of all nodes.

    The step of unit ``k`` is the sum of ``g x_v`` over the nodes ``v`` that activate it, and its bias step
    the sum of ``g``. Where one node does, their ratio is that node's features, whoever holds it and however
    many owners are in the sum: masks hide whose it is, and nothing else. Under Adam every step of such a unit
    is the same in all words of the node and in the bias, so the ratio holds too. A ratio of zeros and ones
    shows that one node, or several with the same words, made it. A unit that several nodes activated asks for
    one word more in the next round, one that some of them have.

    The owners are honest. The broadcast has the right names and shapes and finite numbers, and all owners get
    the same one, so histories of masked sums agree.

    References:
        Fowl et al., Robbing the Fed, ICLR 2022; Boenisch et al., When the curious abandon honesty, EuroS&P
        2023 (trap weights); quantile-based bias initialisation (QBI), 2024, for units that one sample
        activates. Pairs of words in place of quantiles need no knowledge of the data.
    """

    id = "a5-planted-units"
    subject = "single nodes"
    family = "weights"
    summary = "all owners' nodes, from planted first-layer units"
    adversaries = (SERVER,)
    behaviour = "malicious"
    channel = "update"
    reads_sums = True
    controls = (
        Control("ten planted rounds", {"rounds": 10, "training.hidden": [256, 32]}),
        Control("ten planted rounds of plain steps", {"rounds": 10, "training.hidden": [256, 32], **_SGD}),
    )
    depends_on = ("training.hidden", "training.optimizer", "rounds")
    stops = "noise (distributed_dp, local_dp); masked and homomorphic hide only whose node it is"

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with a server that plants weights: the same channels, the owners unchanged."""
        return playing(kind)

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of each owner, from its single uploads."""
        by_owner: dict[str, list[np.ndarray]] = {}
        uploads = self.single_uploads(view)
        for seen in uploads:
            by_owner.setdefault(seen.clients[0], []).append(self._rows(seen.values))
        values = {owner: np.unique(np.concatenate(rows), axis=0) for owner, rows in sorted(by_owner.items())}
        return Guess.of_owners(COVERED, values, len(uploads))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of all owners, from the sums."""
        sums = self.opened_sums(view)
        rows = np.unique(np.concatenate([self._rows(seen.values) for seen in sums]), axis=0)
        return Guess(COVERED, {ALL: rows}, {ALL: sums[0].clients}, len(sums))

    def _rows(self, step: Mapping[str, Any]) -> np.ndarray:
        if not {OWN, BIAS} <= step.keys():
            raise Blind(f"{self.id}: the update is of no GraphSAGE layer with a bias")
        weight = np.asarray(step[OWN], dtype=np.float64)
        return single_rows(weight, np.asarray(step[BIAS], dtype=np.float64)[: len(weight)])


def single_rows(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The rows of zeros and ones among the units' ratios ``weight / bias``.

    Args:
        weight: steps of a layer ``[units, words]``.
        bias: steps of its bias ``[units]``.

    Returns:
        ``[rows, words]``, without units that did not move, or that nodes with different words moved.
    """
    moved = np.abs(bias) > 0
    rows = weight[moved] / bias[moved, None]
    whole = rows.round()
    alike = (np.abs(rows - whole) <= NEAR).all(1) & np.isin(whole, (0.0, 1.0)).all(1)
    return np.asarray(whole[alike & (whole.sum(1) >= WORDS)])


def planted(state: Mapping[str, torch.Tensor], words: Mapping[int, np.ndarray], seed: int) -> State:
    """The same names and shapes, with units that nodes with all of the unit's words activate.

    Units of the neighbours' half are off at every node. The second layer adds a constant, so that the row it
    passes on changes with the unit also after it is scaled to length 1.

    Args:
        state: the weights of a GraphSAGE classifier.
        words: unit -> the words that it asks for.
        seed: of the later layers.
    """
    rng = np.random.default_rng(seed)
    made = {name: value.clone() for name, value in state.items()}
    own, bias = torch.zeros_like(made[OWN]), torch.full_like(made[BIAS], -1.0)
    for unit, asked in words.items():
        own[unit, torch.as_tensor(asked)] = 1.0
        bias[unit] = 0.5 - len(asked)
    made |= {OWN: own, NEIGHBOUR: torch.zeros_like(made[NEIGHBOUR]), BIAS: bias}
    for name, value in made.items():
        if name not in (OWN, NEIGHBOUR, BIAS) and value.is_floating_point():
            made[name] = torch.as_tensor(rng.standard_normal(value.shape), dtype=value.dtype)
    return made


def first_words(units: int, words: int, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Two random words for each unit."""
    return {unit: rng.choice(words, WORDS, replace=False) for unit in range(units)}


def next_words(
    asked: Mapping[int, np.ndarray], weight: np.ndarray, bias: np.ndarray, rng: np.random.Generator
) -> dict[int, np.ndarray]:
    """What each unit asks for next: one word more where several nodes activated it, or two others.

    Args:
        asked: unit -> the words of the last round.
        weight, bias: the step of the layer, as :func:`single_rows` reads it.
        rng: of the choices.
    """
    following = first_words(len(weight), weight.shape[1], rng)
    for unit, words in asked.items():
        if not bias[unit] or len(single_rows(weight[[unit]], bias[[unit]])):
            continue
        ratio = weight[unit] / bias[unit]
        some = np.flatnonzero((ratio > NEAR) & (ratio < 1 - NEAR))  # some of its nodes have it, others not
        if len(some):
            following[unit] = np.append(words, rng.choice(some))
    return following


def spiked(state: Mapping[str, torch.Tensor], units: int) -> State:
    """The same model with two large words and a low bias in the first units, and nothing else changed.

    A node has to have both words: one of them, and what the other weights make of its words, stay below the
    bias.

    Args:
        state: the weights of a GraphSAGE classifier.
        units: how many are planted.
    """
    made = {name: value.clone() for name, value in state.items()}
    rng = np.random.default_rng(units)
    for unit, asked in first_words(units, made[OWN].shape[1], rng).items():
        made[OWN][unit, torch.as_tensor(asked)] = HEIGHT
        made[BIAS][unit] = (0.5 - len(asked)) * HEIGHT
    return made


def walked(state: State, target: State, change: float) -> State:
    """The model on the way to a target, at most ``change`` from where it is."""
    far = math.sqrt(
        sum(float((target[name] - value).double().square().sum()) for name, value in state.items())
    )
    share = min(1.0, SLACK * change / far) if far else 1.0
    return {name: torch.lerp(value, target[name], share) for name, value in state.items()}


def playing(kind: type[Algorithm], change: float | None = None, walk: int = 5) -> type[Algorithm]:
    """``kind`` with a server that plants weights in every round, where the model is a GraphSAGE.

    Args:
        kind: whose owners it plays with.
        change: the limit of its clients (:class:`~secure_fedgraph.privacy.broadcasts.BroadcastLimits`), where
            they have one: it then begins with the public start, plants as many units as it reaches, and
            never moves further in a round.
        walk: rounds in which it moves, under a limit.
    """

    class Played(kind):  # type: ignore[misc,valid-type]
        def round(self, round: RoundApi, state: State) -> State:
            if not {OWN, NEIGHBOUR, BIAS} <= state.keys():
                honest: State = super().round(round, state)
                return honest
            if change is not None:
                reached = int((change * walk / (HEIGHT * math.sqrt(WORDS + (WORDS - 0.5) ** 2))) ** 2)
                target = spiked(state, min(max(reached, 1), len(state[OWN])))
                given = walked(state, target, change) if round.number > 1 else state
                super().round(round, given)  # what comes back is in the view
                return given
            rng = np.random.default_rng(round.number)
            units, words = state[OWN].shape
            asked = _asked(state) if round.number > 1 else first_words(units, words, rng)
            crafted = planted(state, asked, round.number)
            made = super().round(round, crafted)
            step = {name: (made[name] - crafted[name]).double().numpy() for name in (OWN, BIAS)}
            return planted(made, next_words(asked, step[OWN], step[BIAS][:units], rng), round.number + 1)

    return disguised(Played, kind)


def _asked(state: State) -> dict[int, np.ndarray]:
    """The words of each unit, from the planted weights."""
    return {unit: np.flatnonzero(row) for unit, row in enumerate(state[OWN].numpy() == 1.0)}
