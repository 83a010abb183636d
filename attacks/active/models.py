"""H5, I2 and D8 by parties that deviate: a model that stands still, planted answers, a faster owner."""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np
import torch

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.attacks.active import disguised
from secure_fedgraph.attacks.attack import ALL, LAST, SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.rounds import CohortDifferencing
from secure_fedgraph.attacks.scores import METRICS, TEST_SHARES
from secure_fedgraph.attacks.vertical.labels import ModelCompletion
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen
from secure_fedgraph.seams import ClientContext, RoundApi

BIAS, WEIGHT = "head.bias", "head.weight"
SURE = 100.0
FASTER = 10.0
"""How many times the agreed learning rate the owner trains its own layers with."""


class StandingModel(CohortDifferencing):
    """H5: the model stands still, so two sums differ by the owner who was absent from one of them.

    F1 reads single updates from the list of drop-outs and the sums, and is as good as updates are alike from
    round to round. A server that hands out the model of the first round in every round makes them alike: each
    owner starts from the same weights, and only its batches and sampled neighbours differ. Where training
    draws nothing, updates are exact. Names, shapes and numbers of the broadcast are those of an honest first
    round, and all owners get the same one. The model learns nothing, which its accuracy shows.

    References:
        So et al., Securing Secure Aggregation, AAAI 2023; Pasquini et al., Eluding Secure Aggregation, CCS
        2022 (there the models of the others are made inconsistent; here all owners get one model).
    """

    id = "h5-standing-model"
    subject = "updates from a model that stands still"
    summary = "single owners' updates, from drop-outs and sums under a repeated broadcast"
    adversaries = (SERVER,)
    behaviour = "malicious"
    controls = (
        Control(
            "drop-outs and training that draws nothing",
            {
                "rounds": 10,
                "clients": 10,
                "dropouts": 0.1,
                "training.batch": "full",
                "training.fanout": [0, 0],
            },
        ),
    )
    depends_on = ("rounds", "clients", "dropouts", "protection.batch")
    stops = "fixed cohorts; whole batches of clients (protection.batch); noise"

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with a server that hands out what it began with, in every round."""

        class Played(kind):  # type: ignore[misc,valid-type]
            def round(self, round: RoundApi, state: State) -> State:
                super().round(round, state)
                return state

        return disguised(Played, kind)


class ConstantAnswers(Attack):
    """I2: the accuracy of a model that always answers one class is the share of that class.

    The server hands out each round's model with the weights of its last layer at zero and one large bias. An
    owner that scores it answers with the share of that class among its test nodes; after as many rounds as
    there are classes the server has all of them. Training goes on undisturbed. Masks hide single scores; the
    sum of scores is then the exact sum of shares.

    Names and shapes of the model are as they should be, and all numbers are finite.
    """

    id = "i2-constant-answers"
    subject = "class shares of test nodes"
    family = "scores"
    summary = "class shares of an owner's test nodes, from scores of models that answer one class"
    adversaries = (SERVER,)
    behaviour = "malicious"
    channel = METRICS
    controls = (Control("a round for each of ten classes", {"rounds": 10}),)
    depends_on = ("rounds", "evaluation")
    stops = "evaluation=at_home; masks leave the share over all owners"

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with a server that has planted models scored: training is as it was."""

        class Played(kind):  # type: ignore[misc,valid-type]
            _turn = 0

            def round(self, round: RoundApi, state: State) -> State:
                made: State = super().round(round, state)
                self._turn = round.number
                return made

            def released(self, state: State) -> State | None:
                honest = cast("State | None", super().released(state))
                if not self._turn or honest is None or not {BIAS, WEIGHT} <= honest.keys():
                    return honest
                bias = torch.zeros_like(honest[BIAS])
                bias[(self._turn - 1) % len(bias)] = SURE
                return {**honest, WEIGHT: torch.zeros_like(honest[WEIGHT]), BIAS: bias}

        return disguised(Played, kind)

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The class shares of each owner's test nodes ``[classes]``; NaN of a class that was not asked."""
        uploads = self.single_uploads(view)
        asked = self._asked(view)
        owners = sorted({seen.clients[0] for seen in uploads})
        values = {o: self._shares(view, asked, [s for s in uploads if s.clients[0] == o]) for o in owners}
        return Guess.of_owners(TEST_SHARES, values, len(uploads))

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


class LeaningCompletion(ModelCompletion):
    """D8 by the last owner, which trains its own layers with ten times the agreed learning rate.

    What it sends then separates the classes sooner than what the others send, the classifier learns to rely
    on it, and the embeddings that come back carry more of it (Fu et al.'s active attack; their optimiser
    scales each parameter's step by how the gradient changed, this one by a constant). Nobody can see an
    owner's learning rate. Otherwise as D8.

    References:
        Fu et al., Label Inference Attacks Against Vertical Federated Learning, USENIX Security 2022, section
        4.3.
    """

    id = "d8-leaning-completion"
    subject = "labels by an owner that trains faster"
    summary = "labels of training nodes, by training faster than was agreed"
    adversaries = (LAST,)
    also_reads: ClassVar[tuple[str, ...]] = ()
    behaviour = "malicious"
    controls = (
        Control("labels at one owner for four rounds", {**ModelCompletion.controls[0].settings, "rounds": 4}),
    )
    stops = "nothing built: nobody sees how an owner trains"

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with a last owner that trains faster; kinds without a rate are as they were."""

        class Played(kind):  # type: ignore[misc,valid-type]
            def rate(self, client: ClientContext) -> float:
                agreed: float = super().rate(client)
                return agreed * (FASTER if client.name == max(client.clients) else 1.0)

        return disguised(Played, kind)
