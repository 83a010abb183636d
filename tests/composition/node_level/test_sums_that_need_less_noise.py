"""Noise that a sum does not need, in whole runs: in processes, after a resume, in every kind of channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small

import secure_fedgraph as sfg
from secure_fedgraph.core import wire
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.wire import Tree
from secure_fedgraph.policies import distributed_dp
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import everything

CLIENTS = 5


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=CLIENTS, nodes=100, features=8, seed=0)


def train(federation: sfg.Federation, name: str = "fedavg", **more: Any) -> sfg.Run:
    policy = distributed_dp(1.0, 2.0, quorum=3, limit=50.0)
    return sfg.train(
        small.algorithm(name), federation, policy, seed=0, keep=everything, **{"rounds": 2, **more}
    )


def unmasked(run: sfg.Run, round: int | None = None) -> list[Tree]:
    """What clients answered to the last step of each sum."""
    transcript = run.transcript
    return [
        Message.from_bytes(transcript.body(note.number)).tree()
        for note in transcript.sent
        if note.step == "unmask" and note.recipient == "server" and round in (None, note.round)
    ]


def keys(run: sfg.Run, round: int | None = None) -> list[int]:
    return [len(tree.get("noise", ())) for tree in unmasked(run, round)]


def test_clients_hand_out_the_keys_that_the_sum_does_not_need(federation):
    left = Dropouts(at={(1, "owner-1"): "answer", (2, "owner-0"): "unmask"})
    made = train(federation, dropouts=left)
    parts = made.policy["update"].carrier.noise_components
    assert keys(made, 1) == [parts.unneeded(4)] * 4
    assert keys(made, 2) == [parts.unneeded(5)] * 4  # who is gone by then keeps its noise
    assert parts.unneeded(5) > parts.unneeded(4) > 0
    assert made.transcript.left_out == []


class Killed(Exception):
    """Stands for kill -9."""


def test_after_a_resume_too_under_fresh_keys(federation, tmp_path, monkeypatch):
    ask = Courier.ask

    def dies(self: Courier, sender: str, round: int, channel: str, step: str, *args: Any, **how: Any) -> Any:
        if (round, step) == (2, "unmask"):
            raise Killed
        return ask(self, sender, round, channel, step, *args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Courier, "ask", dies)
        with pytest.raises(Killed):
            train(federation, out=tmp_path)
    made = train(federation, out=tmp_path, resume=True)
    assert keys(made, 2) == keys(made, 1) == [2] * CLIENTS
    seen = [bytes(row) for tree in unmasked(made) for row in tree["noise"]]
    assert len(set(seen)) == len(seen)


@pytest.mark.filterwarnings("ignore::secure_fedgraph.forms.FormWarning")
@pytest.mark.parametrize("name", ["fedridge", "fedsgd", "fedsgc"])
def test_in_every_kind_of_noised_channel(federation, name):
    made = train(federation, name, rounds=1)
    (first, *_) = {note.channel: note for note in made.transcript.opened}.values()
    assert len(set(keys(made))) == 1
    assert keys(made)[0] > 0
    values = wire.decode(made.transcript.body(first.number)).values()
    assert all(np.isfinite(value).all() for value in values)
