"""H5: a malicious server that broadcasts one model again and again, and subtracts sums over other cohorts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.attacks.attack import SERVER, Control
from secure_fedgraph.attacks.rounds import CohortDifferencing
from secure_fedgraph.core.given import Expected
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.seams import RoundApi


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
    title = "single owners' updates, from sums over changing cohorts of a model that stands still"
    subject = "updates from a model that stands still"
    summary = "single owners' updates, from drop-outs and sums under a repeated broadcast"
    adversaries = (SERVER,)
    behaviour = "malicious"
    cost = "as F1; and a run that learns nothing"
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
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "fixed cohorts; whole batches of clients (protection.batch); noise"
    }

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with a server that hands out what it began with, in every round."""
        return playing(kind)


def playing(kind: type[Algorithm]) -> type[Algorithm]:
    """``kind`` with a server that asks as it should, and throws the answers away."""

    class Played(kind):  # type: ignore[misc,valid-type]
        name = kind.name

        def takes(self, channel: str, schema: Schema) -> Expected | None:
            """As ``kind``: the owners' door is as it was."""
            return cast("Expected | None", super().takes(channel, schema))

        def round(self, round: RoundApi, state: State) -> State:
            super().round(round, state)
            return state

    Played.__qualname__ = Played.__name__ = f"Standing{kind.__name__}"
    return Played
