"""Noise that a sum does not need, through whole rounds: what is left, what is said of it, wrong keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from parties import Session, Toy, session

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.secagg import client
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.protection.bound import Sum
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.policies import distributed_dp, masked

TEN = tuple(f"c{i}" for i in range(10))
WIDTH, MULTIPLIER = 20_000, 2.0
Spoil = Callable[[wire.Tree], wire.Tree]


def federation(
    names: tuple[str, ...] = TEN,
    width: int = WIDTH,
    **settings: Any,
) -> Session:
    """Clients whose uploads are zeros, so that a sum is its noise."""
    policy = distributed_dp(1.0, MULTIPLIER, **settings)
    made = session(policy, names=names, width=width).set_up()
    for one in made.clients.values():
        one.memory["w"] = torch.zeros(width)
    return made


def reduced(
    made: Session, left: Mapping[str, str] | None = None, spoil: Mapping[str, Spoil] | None = None
) -> Sum:
    """One sum, in which some clients stop answering from a step on, and some spoil their answer to unmask."""
    left, spoil = left or {}, spoil or {}
    gone: set[str] = set()

    def tamper(name: str, reply: Message) -> Message | None:
        if left.get(name) == reply.step:
            gone.add(name)
        if name in gone:
            return None
        if name in spoil and reply.step == "unmask":
            return Message(**{**vars(reply), "body": wire.encode(spoil[name](reply.tree()))})
        return reply

    made.tamper = tamper
    return made.round().reduce(Toy.UPDATE)


def stage(made: Session) -> Gaussian:
    found = made.policy["update"].stages[1]
    assert isinstance(found, Gaussian)
    return found


def deviation(total: Sum) -> float:
    return float(total.total["w"].double().std())


def expected(honest: int, answering: int, silent: int) -> float:
    """Of so many clients that handed out what is not needed, and so many that kept the share for 7."""
    return MULTIPLIER * math.sqrt(answering / honest + silent / 7)


class TestWhatIsLeft:
    @pytest.mark.parametrize(
        ("left", "honest", "answering", "silent"),
        [
            ({}, 9, 10, 0),
            ({"c3": "advertise"}, 8, 9, 0),
            ({"c3": ANSWER}, 8, 9, 0),
            ({"c3": "share", "c5": ANSWER}, 7, 8, 0),  # as many as may be gone
            ({"c3": "agree"}, 9, 9, 1),  # it had uploaded: its whole share stays
            ({"c3": "unmask", "c4": "unmask"}, 9, 8, 2),
            ({"c3": ANSWER, "c4": "unmask"}, 8, 8, 1),
            ({"c3": ANSWER, "c4": ANSWER, "c5": "unmask"}, 7, 7, 1),
        ],
        ids=lambda value: "+".join(value.values()) if isinstance(value, dict) else None,
    )
    def test_it_is_what_those_need_who_are_in_the_sum(self, left, honest, answering, silent):
        made = federation()
        total = reduced(made, left)
        assert len(total.contributors) == answering + silent
        assert total.deviation == pytest.approx(expected(honest, answering, silent), rel=1e-3)
        assert deviation(total) == pytest.approx(total.deviation, rel=0.03)
        # all but one of those in the sum hold the whole noise
        assert (
            total.deviation * math.sqrt((len(total.contributors) - 1) / len(total.contributors))
            > MULTIPLIER * 0.999
        )

    def test_before_it_was_a_fifth_more(self):
        whole = reduced(federation(remove_excess=False))
        assert whole.deviation == pytest.approx(MULTIPLIER * math.sqrt(10 / 7), rel=1e-3)
        assert deviation(whole) == pytest.approx(whole.deviation, rel=0.03)

    def test_with_neighbours_too(self):
        names = tuple(f"n{i:02d}" for i in range(40))
        total = reduced(federation(names, 2000), {"n03": ANSWER, "n11": "unmask"})
        assert total.deviation == pytest.approx(deviation(total), rel=0.1)
        stage_of = stage(federation(names, 1)).deviation
        assert total.deviation == stage_of(39, 1) < stage_of(39, 39)

    @pytest.mark.parametrize("bits", [16, 20, 32])
    def test_the_values_are_as_they_were(self, bits):
        made = federation(width=5, bits=bits)
        for one in made.clients.values():
            one.memory["w"] = torch.tensor([0.5, -0.5, 0.25, 0.0, 0.125])
        seen = np.array([reduced(made).total["w"].numpy() for _ in range(30)])
        off = seen.mean(axis=0) - 10 * np.array([0.5, -0.5, 0.25, 0.0, 0.125])
        assert np.abs(off).max() < 6 * expected(9, 10, 0) / math.sqrt(30)

    def test_under_masks_alone_nothing_changes(self):
        made, seen = session(masked(), names=TEN).set_up(), []
        made.tamper = lambda name, reply: (
            (seen.append(reply.tree()), reply)[1] if reply.step == "unmask" else reply
        )
        made.round().reduce(Toy.UPDATE)
        assert all(set(tree) == {"shares"} for tree in seen)


class TestKeysThatAreNone:
    @pytest.mark.parametrize(
        "spoil",
        [
            lambda tree: {"shares": tree["shares"]},
            lambda tree: {**tree, "noise": tree["noise"][:1]},
            lambda tree: {**tree, "noise": tree["noise"][:, :31]},
            lambda tree: {**tree, "noise": tree["noise"].astype(np.int32)},
            lambda tree: {**tree, "noise": b"keys"},
            lambda tree: {**tree, "noise": np.concatenate([tree["noise"]] * 2)},
        ],
        ids=["none", "too few", "too short", "of another type", "bytes", "too many"],
    )
    def test_who_sends_them_is_left_out_there_and_keeps_its_noise(self, spoil):
        made = federation(width=2000)
        total = reduced(made, spoil={"c4": spoil})
        assert total.contributors == TEN
        assert total.deviation == pytest.approx(expected(9, 9, 1), rel=1e-3)
        (note,) = made.transcript.left_out
        assert note.client == "c4"
        assert "c4 handed out other than 2 keys of its noise" in note.reason

    def test_keys_that_nobody_needs_are_refused(self):
        made = federation(width=100)
        unneeded = {"c4": lambda tree: {**tree, "noise": np.zeros((1, 32), dtype=np.uint8)}}
        reduced(made, {"c3": ANSWER, "c5": ANSWER}, unneeded)
        assert [note.client for note in made.transcript.left_out if "keys of its noise" in note.reason] == [
            "c4"
        ]

    def test_another_key_can_only_add_noise(self):
        total = reduced(federation(), spoil={"c4": lambda tree: {**tree, "noise": tree["noise"] ^ 1}})
        assert deviation(total) > total.deviation * 1.01
        # its noise stays, and what the wrong keys draw comes on top
        assert deviation(total) == pytest.approx(
            MULTIPLIER * math.sqrt(9 / 9 + 1 / 7 + (1 / 7 - 1 / 9)), rel=0.03
        )


class TestSecrets:
    def test_keys_are_fresh_in_each_sum_and_forgotten_after_it(self, monkeypatch):
        made, seen = federation(width=10), []
        kept = client.keep_noise_keys
        monkeypatch.setattr(
            client, "keep_noise_keys", lambda keys, party: (seen.extend(keys), kept(keys, party))[1]
        )
        for _ in range(2):
            reduced(made)
        assert len(set(seen)) == len(seen) == 2 * 10 * 2
        assert all(len(key) == 32 for key in seen)
        left = repr([party.secrets for party in made.parties.values()])
        assert "noise" not in left
        assert not any("masked/session" in party.secrets for party in made.parties.values())

    def test_the_charge_comes_before_the_upload_and_is_what_it_was(self):
        charges = []
        for remove_excess in (True, False):
            made = federation(width=50, remove_excess=remove_excess)
            reduced(made, {"c3": ANSWER})
            charges.append(made.ledger.charges)
        now, then = ([c.releases["server"][0] for c in one] for one in charges)
        assert len(now) == len(then) == 10  # the client that left was charged too
        for one, other in zip(now, then, strict=True):
            assert (one.noise_multiplier, one.shares, one.sigma) == (
                other.noise_multiplier,
                other.shares,
                other.sigma,
            )
