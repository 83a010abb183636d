"""Recorded messages of every algorithm under every policy that binds, changed by the thousand.

What may come of a call of ``Client.handle`` is an answer or one of the project's own errors: no other
exception, no hang, no 64 MiB over what the process had at its start.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
import recorded
import small
import torch

from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.fedego.algorithm import FedEgo
from secure_fedgraph.client import Client
from secure_fedgraph.core import inputs, wire
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.inputs import Integers, Numbers, Real, Text, Texts, Whole
from secure_fedgraph.core.message import Message

FAST = ("fedavg", "fedsage+", "fedego", "glasu", "apflgate", "fairgraphfl")
QUICK, CALLS = 100, 100_000
UNUSED = {
    "glasu": {"randomised_links"},
    "glasu-one-label-holder": {"randomised_links"},
}
"""Channels that a variant puts another in the place of, or that only randomised links use."""


QUICKLY = [
    recorded.Pair(name, ("plaintext", "masked", "local_dp")[number % 3]) for number, name in enumerate(FAST)
]
"""One pair of each family under each of three kinds of carrier, in turn."""


@pytest.mark.parametrize("pair", QUICKLY, ids=str)
def test_a_share_of_the_changed_messages(pair: recorded.Pair) -> None:
    found = recorded.attack(pair, QUICK, seed=1, visits=12)
    assert found.findings == []
    assert found.calls >= QUICK
    assert found.answered, "no changed message was ever answered: nothing behind the checks was reached"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_hundred_thousand_changed_messages(algorithm: str) -> None:
    """All algorithms together take that many: each its pairs' part, so that workers share them."""
    own = [pair for pair in recorded.pairs() if pair.algorithm == algorithm]
    part = -(-CALLS * len(own) // len(recorded.pairs()))
    found, by_pair = recorded.summed(part, chosen=own, said=print)
    assert found.findings == []
    assert found.calls >= part > 0
    assert all(one.answered for one in by_pair.values())


def test_every_channel_that_is_declared_is_in_some_pair() -> None:
    used: dict[str, set[str]] = {}
    for pair in recorded.pairs():
        used.setdefault(pair.algorithm, set()).update(c.name for c in pair.make().in_use)
    for name, forms in recorded.FORMS.items():
        tried = {pair.form for pair in recorded.pairs() if pair.algorithm == name}
        assert tried == set(range(len(forms))), f"some form of {name} binds under no policy"
        declared = {c.name for c in ALGORITHMS[name].channels}
        assert declared - UNUSED.get(name, set()) == used[name]


class TestTheHarness:
    """What is watched is seen."""

    pair = recorded.Pair("fedavg", "plaintext")

    def findings(self, monkeypatch, handle, calls: int = 60) -> str:
        monkeypatch.setattr(Client, "_answer", handle)
        return "\n".join(recorded.attack(self.pair, calls, seed=0, visits=2).findings)

    @pytest.fixture
    def answer(self):
        return Client._answer

    def test_an_exception_that_is_not_ours(self, monkeypatch, answer) -> None:
        def broken(client, request):
            return answer(client, request) if request.exchange < 9 else {}["nothing"]

        assert "KeyError" in self.findings(monkeypatch, broken)

    def test_an_allocation(self, monkeypatch, answer) -> None:
        def large(client, request):
            if request.exchange >= 9:
                np.ones(recorded.ROOM)
            return answer(client, request)

        assert "MemoryError" in self.findings(monkeypatch, large)

    def test_memory_that_grows_from_call_to_call(self, monkeypatch, answer) -> None:
        held = []

        def leaking(client, request):
            if request.exchange >= 9:
                held.append(torch.ones(10 * 2**20))  # 40 MiB: too large for room that the process has freed
            return answer(client, request)

        assert "rror" in self.findings(monkeypatch, leaking)

    def test_a_hang(self, monkeypatch, answer) -> None:
        monkeypatch.setattr(recorded, "SECONDS", 0.2)

        def slow(client, request):
            if request.exchange == 12:
                time.sleep(5)
            return answer(client, request)

        assert "took more than 0.2 s" in self.findings(monkeypatch, slow)

    def test_a_process_that_ends(self, monkeypatch, answer) -> None:
        def fatal(client, request):
            if request.exchange == 12:
                import os

                os._exit(7)
            return answer(client, request)

        assert "ended with status 7" in self.findings(monkeypatch, fatal)


class TestWhatIsDeclared:
    """The forms of what clients are given, against values that no server sends."""

    @pytest.mark.parametrize(
        ("entry", "value"),
        [
            (Numbers((2,)), torch.zeros(2, dtype=torch.bool)),
            (Numbers((2,)), torch.zeros(2, dtype=torch.int64)),
            (Numbers((2,)), torch.zeros(3)),
            (Numbers((2,)), torch.zeros(2, 1)),
            (Numbers((None, 3)), torch.zeros(2, 4)),
            (Numbers((2,)), torch.tensor([0.0, float("nan")])),
            (Numbers((2,)), torch.tensor([0.0, float("inf")])),
            (Numbers((2,)), torch.tensor([0.0, 1e300], dtype=torch.float64)),  # infinite as float32
            (Numbers((2,)), 0.0),
            (Integers((2,)), torch.zeros(2)),
            (Integers((2,)), torch.zeros(2, dtype=torch.uint64)),
            (Integers((2,), 0, 1), torch.tensor([0, 2])),
            (Whole(0, 3), 4),
            (Whole(0, 3), True),
            (Whole(0, 3), 1.0),
            (Real(), 1),
            (Real(), float("nan")),
            (Text(), b"x"),
            (Texts(2, 3), "a"),
            (Texts(2, 3), ("a", "b", "c")),
            (Texts(2, 3), ("a", "long")),
            (Texts(2, 3), ("a", 1)),
        ],
    )
    def test_a_value_that_does_not_fit(self, entry, value) -> None:
        with pytest.raises(HostileMessage, match="'w' does not fit"):
            inputs.check([{"w": entry}], {"w": value}, "channel 'update'")

    def test_names_of_no_form(self) -> None:
        forms = [{"a": Whole()}, {"a": Whole(), "b": Whole()}]
        inputs.check(forms, {"a": 1}, "here")
        inputs.check(forms, {"a": 1, "b": 2}, "here")
        for values in ({}, {"b": 1}, {"a": 1, "c": 1}):
            with pytest.raises(HostileMessage, match="parameters do not fit"):
                inputs.check(forms, values, "here")

    def test_nothing_is_charged_for_what_does_not_fit(self) -> None:
        pair, charged = recorded.Pair("fedavg", "local_dp"), []

        def visit(client: Client, raw: bytes, number: int) -> None:
            message = Message.from_bytes(raw)
            if message.channel != "update" or charged:
                return
            tree = wire.decode(bytes(message.body))
            body = wire.encode({name: np.asarray(value) > 0 for name, value in tree.items()})
            before = len(client._ledger.charges)
            with pytest.raises(HostileMessage):
                client.handle(Message(**{**vars(message), "body": body}).to_bytes())
            charged.append(len(client._ledger.charges) - before)
            client._answered -= 1  # the honest one comes next

        recorded.visited(pair, visit)
        assert charged == [0]

    @pytest.mark.parametrize("name", ALGORITHMS)
    def test_every_channel_of_this_package(self, name: str) -> None:
        algorithm = small.algorithm(name)
        federation = small.federation(name)
        for channel in (*algorithm.in_use, *federation.referee.channels(algorithm)):
            assert algorithm.expected(channel.name, federation.schema) is not None, channel.name
            if channel.to == "peer":
                assert algorithm.shows(channel.name, federation.schema) is not None, channel.name

    def test_who_answers_in_its_own_way_declares_its_own(self) -> None:
        class Own(FedEgo):
            name = "own"

            @FedEgo.MIX.answer
            def mix(self, client, given) -> None:
                """Takes anything."""

        federation = small.federation("fedego")
        algorithm = Own(**small.SETTINGS["fedego"])
        assert algorithm.expected("mix", federation.schema) is None
        assert algorithm.expected("reduction", federation.schema) is not None

        class Asks(FedEgo):
            name = "asks"

            def round(self, round, state):
                """Gives something else."""
                return state

        assert Asks(**small.SETTINGS["fedego"]).expected("reduction", federation.schema) is None


class TestFindings:
    """What the fuzzers found, one by one."""

    def test_a_round_that_no_run_has(self) -> None:
        message = Message("r", 2**62, 1, "update", "answer", "server", "a", ("a",), wire.encode({}))
        with pytest.raises(HostileMessage, match="of round"):
            Message.from_bytes(message.to_bytes())

    def test_glasus_rate_after_a_million_rounds(self) -> None:
        client = SimpleNamespace(round=10**9)
        assert small.algorithm("glasu", decay_every=1).rate(client) == 0.0

    @pytest.mark.parametrize("left", [0, 1])
    def test_an_agent_does_not_say_which_motifs_it_has(self, left: int) -> None:
        """A vocabulary without one of its motifs is taken like any other: a refusal would be an answer."""
        pair, seen = recorded.Pair("fairgraphfl", "plaintext"), []

        def visit(client: Client, raw: bytes, number: int) -> None:
            message = Message.from_bytes(raw)
            if message.channel != "vocabulary" or seen:
                return
            codes = np.array(wire.decode(bytes(message.body))["codes"])[:left]
            changed = Message(**{**vars(message), "body": wire.encode({"codes": codes})})
            client.handle(changed.to_bytes())
            seen.append(client.memory["vocabulary_length"])
            raise Stop

        with pytest.raises(Stop):
            recorded.visited(pair, visit)
        assert seen == [left]

    def test_an_idf_without_an_agents_motifs(self) -> None:
        pair = recorded.Pair(
            "fairgraphfl", "plaintext", form=recorded.FORMS["fairgraphfl"].index({"idf": "global"})
        )
        seen: list[str] = []

        def visit(client: Client, raw: bytes, number: int) -> None:
            message = Message.from_bytes(raw)
            tree = wire.decode(bytes(message.body))
            if "rarity" not in tree:
                return
            body = wire.encode({"rarity": tree["rarity"][:1], "codes": tree["codes"][:1]})
            client.handle(Message(**{**vars(message), "body": body}).to_bytes())
            seen.append(message.channel)
            raise Stop

        with pytest.raises(Stop):
            recorded.visited(pair, visit)
        assert seen


class Stop(Exception):
    """A run that has gone far enough."""
