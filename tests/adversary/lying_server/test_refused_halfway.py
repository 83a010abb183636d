"""A request that is refused halfway leaves nothing behind, and what it undoes is never opened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from lying import Played, play

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core import wire
from secure_fedgraph.core.channel import Channel, Reveal, UnitContributionMoments
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.upload import ContributionMoments, Upload
from secure_fedgraph.policies import masked, plaintext
from secure_fedgraph.privacy.broadcasts import BroadcastLimits
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=60, features=4, seed=0)


class Own(sfg.Algorithm):
    """Its answers show what the round's batch, the memory and the labels are."""

    name = "own-halfway"
    BATCH = Channel("batch", Reveal.EACH)
    LABELS = Channel("labels", Reveal.EACH)
    MOMENTS = Channel(
        "moments",
        Reveal.SUM,
        unit=Unit.NODE,
        unit_contribution=UnitContributionMoments(targets=1.0, records=9, second=True),
    )
    ASIDE = Channel("aside", Reveal.NOTHING, to="referee")

    def init(self, schema: Any, seed: int) -> Any:
        return {}

    @BATCH.answer
    def batch(self, client: Any, given: Any) -> Upload:
        drawn = client.scratch.setdefault("drawn", client.secret_order(50))
        return Upload({"drawn": drawn.float(), "asked": torch.tensor(float(client.memory.get("asked", 0)))})

    @LABELS.answer
    def labels(self, client: Any, given: Any) -> Upload:
        return Upload({"y": client.graph.y.float()})

    @MOMENTS.answer
    def moments(self, client: Any, given: Any) -> ContributionMoments:
        return ContributionMoments(torch.tensor(1.0), torch.ones(3, 1))

    @ASIDE.answer
    def aside(self, client: Any, given: Any) -> None:
        client.memory["asked"] = 1


def ask(made: Played, channel: str, round: int = 1, sender: str = "server") -> bytes:
    client = made.clients["owner-0"]
    return client.handle(
        Message(
            made.courier.run, round, client.answered + 1, channel, "answer", sender, client.name, made.names,
            wire.encode({}),
        ).to_bytes()
    )  # fmt: skip


def data(reply: bytes) -> Any:
    return wire.decode(Message.from_bytes(reply).body)["data"].tolist()


@pytest.mark.parametrize(
    ("channel", "sender"), [("none", "server"), ("batch", "nobody"), ("carrier/none", "server")]
)
def test_a_later_round_that_is_refused_does_not_end_this_one(
    federation: sfg.Federation, channel: str, sender: str
) -> None:
    made = play(Own(), federation, plaintext())
    before = data(ask(made, "batch"))
    with pytest.raises(Refused):
        ask(made, channel, round=2, sender=sender)
    assert made.clients["owner-0"].round == 1
    assert data(ask(made, "batch")) == before  # another draw of the same round would show more nodes


def test_the_referees_questions_change_nothing(federation: sfg.Federation) -> None:
    made = play(Own(), federation, plaintext())
    before = data(ask(made, "batch"))
    ask(made, "aside", round=9, sender="referee")
    assert data(ask(made, "batch")) == before
    assert made.clients["owner-0"].last_round == 1


def test_a_sum_whose_answer_was_undone_does_not_open(federation: sfg.Federation) -> None:
    """Or two sums of one round over the same model and cohorts that differ by one client show its update."""
    made = play(ALGORITHMS["fedavg"](hidden=(4, 4), fanout=(2, 2)), federation, masked())

    def junk_first(message: Message) -> Message:
        if message.step == "agree":
            junk = replace(message, channel="carrier/none", step="x", exchange=message.exchange - 1)
            with pytest.raises(HostileMessage):
                made.clients[message.recipient].handle(junk.to_bytes())
        return message

    real = made.courier.ask

    def later(*asked: Any, **named: Any) -> Any:
        made.courier._exchange += 2  # room for the junk's number
        return real(*asked, **named)

    made.courier.ask = later  # type: ignore[method-assign]
    made.transport.lie = junk_first
    with pytest.raises(Refused, match="out of order"):
        made.round(1).reduce(made.algorithm.UPDATE, given=made.state)


@pytest.mark.parametrize("fails", ["drawing", "in use"])
def test_a_drawing_that_fails_is_charged_and_never_half_there(
    federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    made = play(Own(), federation, replace(plaintext(), randomizers=(RandomisedLabels(0.1),)))
    client = made.clients["owner-0"]

    def breaks(*_: Any) -> Any:
        raise RuntimeError("by data")

    with monkeypatch.context() as patch:
        if fails == "drawing":
            patch.setattr(RandomisedLabels, "randomize", breaks)
        else:
            patch.setattr("secure_fedgraph.client._with", breaks)
        with pytest.raises(RuntimeError, match="by data"):
            ask(made, "labels")
    assert [charge.steps for charge in client._ledger.charges if charge.channel == "labels"][-1] == {}
    assert data(ask(made, "labels")) == client.memory["drawn labels"].float().tolist()


def test_an_upload_whose_size_cannot_be_told_is_charged(federation: sfg.Federation) -> None:
    made = play(Own(), federation, plaintext())
    with pytest.raises(IndexError):
        ask(made, "moments")
    assert [charge.channel for charge in made.clients["owner-0"]._ledger.charges] == ["moments"]


def test_the_model_of_an_answer_that_was_never_made_is_not_remembered(
    federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next model is measured from the last one that was answered to."""
    drawn, limits = (RandomisedLabels(0.1),), BroadcastLimits(change=1.0)
    policy = replace(plaintext(), randomizers=drawn, broadcasts=limits)
    made = play(ALGORITHMS["fedavg"](hidden=(4, 4), fanout=(2, 2)), federation, policy)
    monkeypatch.setattr("secure_fedgraph.client._with", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made.round(1).reduce(made.algorithm.UPDATE, given=made.state)
    assert not any(client.memory for client in made.clients.values())
