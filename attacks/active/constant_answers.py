"""I2: a malicious server asks owners to score models that always answer one class, and reads its share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
import torch

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.attacks.attack import SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.scores import METRICS, TEST_SHARES
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.core.given import Expected
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen
from secure_fedgraph.seams import RoundApi

BIAS, WEIGHT = "head.bias", "head.weight"
SURE = 100.0


class ConstantAnswers(Attack):
    """I2: the accuracy of a model that always answers one class is the share of that class.

    The server hands out each round's model with the weights of its last layer at zero and one large bias. An
    owner that scores it answers with the share of that class among its test nodes; after as many rounds as
    there are classes the server has all of them. Training goes on undisturbed. Masks hide single scores; the
    sum of scores is then the exact sum of shares.

    Names and shapes of the model are as they should be, and all numbers are finite.
    """

    id = "i2-constant-answers"
    title = "how an owner's test nodes are spread over the classes, from its scores of planted models"
    subject = "class shares of test nodes"
    family = "scores"
    summary = "class shares of an owner's test nodes, from scores of models that answer one class"
    adversaries = (SERVER,)
    behaviour = "malicious"
    channel = METRICS
    cost = "a round for each class"
    controls = (Control("a round for each of ten classes", {"rounds": 10}),)
    depends_on = ("rounds", "evaluation")
    stops: ClassVar[Mapping[str, str]] = {SERVER: "evaluation=at_home; masks leave the share over all owners"}

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with a server that has planted models scored: training is as it was."""
        return playing(kind)

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The class shares of each owner's test nodes ``[classes]``; NaN of a class that was not asked."""
        uploads = self.single_uploads(view)
        asked = self._asked(view)
        owners = sorted({seen.clients[0] for seen in uploads})
        values = {o: self._shares(view, asked, [s for s in uploads if s.clients[0] == o]) for o in owners}
        return Guess(TEST_SHARES, values, {owner: (owner,) for owner in owners}, len(uploads))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The mean of all owners' shares, from the sums."""
        sums = self.opened_sums(view)
        return Guess(
            TEST_SHARES, {ALL: self._shares(view, self._asked(view), sums)}, {ALL: sums[0].clients}, len(sums)
        )

    def _asked(self, view: View) -> dict[int, int]:
        """Exchange -> the class that its model answers."""
        asked = {
            seen.exchange: int(np.argmax(seen.values[BIAS]))
            for seen in view.asked(self.channel)
            if BIAS in seen.values and np.asarray(seen.values[BIAS]).max() == SURE
        }
        if not asked:
            raise Blind(f"{self.id}: the model has no last layer with a bias, so no class could be planted")
        return asked

    def _shares(self, view: View, asked: dict[int, int], scores: list[Seen]) -> np.ndarray:
        shares = np.full(view.public["schema"]["classes"], np.nan)
        for seen in scores:
            tested = float(np.sum(seen.values.get("tested", len(seen.clients))))
            if seen.exchange in asked and "accuracy" in seen.values:
                shares[asked[seen.exchange]] = float(np.sum(seen.values["accuracy"])) / max(tested, 1e-12)
        missing = np.isnan(shares)
        if missing.sum() == 1:  # they add up to 1
            shares[missing] = max(0.0, 1 - float(np.nansum(shares)))
        return shares


def playing(kind: type[Algorithm]) -> type[Algorithm]:
    """``kind`` with a server that hands out, to be scored, a model that answers one class."""

    class Played(kind):  # type: ignore[misc,valid-type]
        name = kind.name
        _turn = 0

        def takes(self, channel: str, schema: Schema) -> Expected | None:
            """As ``kind``: the owners' door is as it was."""
            return cast("Expected | None", super().takes(channel, schema))

        def round(self, round: RoundApi, state: State) -> State:
            made: State = super().round(round, state)
            self._turn = round.number
            return made

        def released(self, state: State) -> State | None:
            honest = cast("State | None", super().released(state))
            if not self._turn or honest is None or not {BIAS, WEIGHT} <= honest.keys():
                return honest
            return planted(honest, (self._turn - 1) % len(honest[BIAS]))

    Played.__qualname__ = Played.__name__ = f"Scored{kind.__name__}"
    return Played


def planted(model: State, answer: int) -> dict[str, Any]:
    """The same names and shapes, with a last layer that always answers one class."""
    bias = torch.zeros_like(model[BIAS])
    bias[answer] = SURE
    return {**model, WEIGHT: torch.zeros_like(model[WEIGHT]), BIAS: bias}
