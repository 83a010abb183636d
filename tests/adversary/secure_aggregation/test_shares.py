"""What clients share with each other: one verb, the server only carries, and what a lying server tries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from parties import session, vectors

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.core import wire
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage, Incompatible
from secure_fedgraph.core.parcel import READ, Bundle
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.policies import plaintext, sealed, strictest

NAMES = ("owner-0", "owner-1", "owner-2")


class Sharing(Algorithm):
    """Clients share their vectors; each keeps what it read."""

    name = "sharing"
    ROWS = Channel("rows", Reveal.EACH, to="peer")
    OTHER = Channel("other", Reveal.SUM, to="peer")

    @ROWS.answer
    def rows(self, client, given):
        return Upload(
            {"w": client.memory["w"] if "w" in client.memory else torch.full((2,), float(client.name[-1]))}
        )

    @ROWS.read
    def take(self, client, found):
        client.memory["read"] = found

    @OTHER.answer
    def other(self, client, given):
        return Upload({"w": torch.zeros(1)})

    @OTHER.read
    def ignore(self, client, total):
        pass


class Whole(Sharing):
    """The same as a run: everybody shares, and who got what comes back as a released model."""

    name = "whole"
    SENDERS = None
    GOT = Channel("got", Reveal.SUM)

    def init(self, schema, seed):
        return {"got": torch.zeros(3)}

    def round(self, round, state):
        round.share(self.ROWS, senders=self.SENDERS)
        return {"got": round.reduce(self.GOT).total["got"].float()}

    def predictions(self, state, round, inputs, schema):
        return {"everybody": torch.zeros(inputs.num_nodes, schema.classes)}

    @GOT.answer
    def got(self, client, given):
        read = client.memory.pop("read", {})
        return Upload({"got": torch.tensor([float(f"owner-{i}" in read) for i in range(3)])})

    @property
    def in_use(self):
        return (self.ROWS, self.GOT)


class OneSender(Whole):
    name = "one-sender"
    SENDERS = ("owner-1",)


@pytest.mark.parametrize("policy", [plaintext, strictest])
@pytest.mark.filterwarnings("ignore::secure_fedgraph.privacy.policy.PlaintextWarning")
def test_everybody_reads_everybody_else_and_not_itself(federation, policy):
    run = sfg.train(Whole(), federation, policy(), rounds=1)
    assert run.state["got"].round().tolist() == [2, 2, 2]


def test_one_sender_is_read_by_the_others(federation):
    run = sfg.train(OneSender(), federation, strictest(), rounds=1, keep=lambda channel, round: True)
    assert run.state["got"].round().tolist() == [0, 2, 0]
    assert run.transcript.view("server").uploads("rows") == []  # it only carried
    (seen,) = (o for o in run.transcript.view("owner-0").opened if o.channel == "rows")
    assert seen.contributors == ("owner-1",)


def test_sums_are_not_shared(federation):
    class Wrong(Whole):
        name = "wrong"

        def round(self, round, state):
            round.share(self.OTHER)
            return state

        @property
        def in_use(self):
            return (self.OTHER,)

    with pytest.raises(Incompatible, match="reduce_for"):
        sfg.train(Wrong(), federation, plaintext(), rounds=1)


class TestALyingServer:
    def shared(self, exchange=50):
        made = session(sealed(), channels=(Sharing.ROWS,), names=NAMES, algorithm=Sharing()).set_up()
        return made, {n: made.tell(made.message(n, "rows", exchange)) for n in NAMES}

    def deliver(self, made, reader, replies, cohort=NAMES, exchange=50, under=60):
        body = wire.encode(Bundle("rows", reader, 1, exchange, cohort, replies).to_tree())
        made.tell(made.message(reader, "rows", under, step=READ, body=body))

    def others(self, replies, reader):
        return {name: tree for name, tree in replies.items() if name != reader}

    def test_the_honest_one(self):
        made, replies = self.shared()
        self.deliver(made, "owner-0", self.others(replies, "owner-0"))
        read = made.clients["owner-0"].memory["read"]
        assert set(read) == {"owner-1", "owner-2"}
        assert np.allclose(read["owner-1"]["w"], vectors(made)["owner-1"])

    def test_it_swaps_who_sent_what(self):
        made, replies = self.shared()
        swapped = {"owner-1": replies["owner-2"], "owner-2": replies["owner-1"]}
        with pytest.raises(HostileMessage):
            self.deliver(made, "owner-0", swapped)

    def test_it_delivers_a_client_its_own(self):
        made, replies = self.shared()
        with pytest.raises(HostileMessage, match="nothing, or its own upload"):
            self.deliver(made, "owner-0", replies)

    def test_it_delivers_nothing(self):
        made, _ = self.shared()
        with pytest.raises(HostileMessage, match="nothing, or its own upload"):
            self.deliver(made, "owner-0", {})

    def test_it_delivers_twice(self):
        made, replies = self.shared()
        self.deliver(made, "owner-0", self.others(replies, "owner-0"))
        with pytest.raises(HostileMessage, match="already read"):
            self.deliver(made, "owner-0", self.others(replies, "owner-0"), under=61)

    def test_it_names_a_cohort_without_the_reader(self):
        made, replies = self.shared()
        with pytest.raises(HostileMessage, match="not itself"):
            self.deliver(made, "owner-0", self.others(replies, "owner-0"), cohort=NAMES[1:])
