"""One client that spoils a masked sum, at each step: the round goes on without it, and nobody else is blamed.

With the sorting taken out the same bytes end the round for everybody, or open a wrong sum.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from parties import Session, Toy, session

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers import tolerant_ask
from secure_fedgraph.core.carriers.secagg import advertisements, server
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.bound import Bound, CutWarning
from secure_fedgraph.core.protection.contracts import Scope
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.policies import homomorphic, masked, plaintext
from secure_fedgraph.protocol import DirectCalls

NAMES = tuple(f"owner-{i}" for i in range(5))
LIAR = "owner-2"
REST = tuple(name for name in NAMES if name != LIAR)
Change = Callable[[wire.Tree], wire.Tree]


class Spoiling(DirectCalls):
    """Changes what one client says at one step: its reply's body, or all of its bytes."""

    def __init__(self, made: Session, step: str, change: Callable[[bytes], bytes]) -> None:
        super().__init__({name: client.handle for name, client in made.clients.items()})
        self.roster = made.clients[LIAR].roster
        self.step, self.change, self.on = step, change, True

    def exchange(self, requests: Any) -> Any:
        return self._spoilt(requests, super().exchange(requests))

    def reach(self, requests: Any) -> Any:
        return self._spoilt(requests, super().reach(requests))

    def _spoilt(self, requests: Any, replies: dict[str, Any]) -> dict[str, Any]:
        if LIAR in replies and self.on and Message.from_bytes(requests[LIAR]).step == self.step:
            replies[LIAR] = self.change(replies[LIAR])
        return replies


def body(change: Change) -> Callable[[bytes], bytes]:
    def changed(raw: bytes) -> bytes:
        message = Message.from_bytes(raw)
        return dataclasses.replace(message, body=wire.encode(change(message.tree()))).to_bytes()

    return changed


def entry(name: str, change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    return body(lambda tree: {**tree, name: change(np.array(tree[name]))})


def flipped(value: np.ndarray) -> np.ndarray:
    value.reshape(-1).view(np.uint8)[3] ^= 1
    return value


def spoilt(step: str, change: Callable[[bytes], bytes], policy: Any = None) -> Session:
    made = session(policy or masked(), names=NAMES).set_up()
    made.courier._transport = Spoiling(made, step, change)
    return made


LOW_ORDER = bytes(32)
SPOILT: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "no message": ("advertise", lambda raw: b"\x80\x04K.", "reply cannot be read: .*format's mark"),
    "cut": ("answer", lambda raw: raw[: len(raw) // 2], "reply cannot be read"),
    "another's name": (
        "share",
        lambda raw: dataclasses.replace(Message.from_bytes(raw), sender="owner-0").to_bytes(),
        "answered something that it was not asked",
    ),
    "an old number": (
        "agree",
        lambda raw: dataclasses.replace(Message.from_bytes(raw), exchange=1).to_bytes(),
        "answered something that it was not asked",
    ),
    "no keys": ("advertise", body(lambda tree: {}), "advertised something that is no signed key"),
    "a signature by nobody": ("advertise", entry("signature", flipped), "keys that are not its own to use"),
    "a key that its signature is not of": ("advertise", entry("public", flipped), "not its own to use"),
    "shares of another size": ("share", entry("shares", lambda v: v[:, :-1]), "others than its neighbours"),
    "no upload": ("answer", body(lambda tree: {}), "numbers, the policy promises masked"),
    "a domain that is an array": (
        "answer", body(lambda tree: {**tree, "domain": np.zeros(2)}), "the policy promises masked"
    ),
    "another layout": ("answer", body(lambda t: {**t, "layout": "1\nv:5"}), "another layout"),
    "a layout that promises the world": (
        "answer", body(lambda t: {**t, "layout": "1\nw:999999999999"}), "another layout"
    ),
    "words of a wider ring": ("answer", entry("data", lambda v: v.astype("<u8")), "does not hold 1 x 6"),
    "real numbers": ("answer", entry("data", lambda v: v.astype("<f4") * np.nan), "does not hold 1 x 6"),
    "too many words": ("answer", entry("data", lambda v: np.repeat(v, 9)), "does not hold 1 x 6 values"),
    "bytes for words": ("answer", body(lambda t: {**t, "data": b"pickle"}), "does not hold 1 x 6 values"),
    "another broadcast": ("answer", body(lambda t: {**t, "context": "0" * 64}), "given something else"),
    "no signature": ("agree", body(lambda tree: {}), "something that is no signature"),
    "a signature on another list": ("agree", entry("signature", flipped), "signed another list of survivors"),
    "no shares": ("unmask", body(lambda tree: {}), "revealed something that is no shares"),
    "shares of fewer": ("unmask", entry("shares", lambda v: v[1:]), "something that is no shares"),
}  # fmt: skip
UPLOADED = ("agree", "unmask")


def exact(made: Session, total: Any, names: tuple[str, ...]) -> bool:
    plain = sum(made.clients[name].memory["w"].numpy() for name in names)
    return total.contributors == names and np.abs(total.total["w"].numpy() - plain).max() < 1e-6


@pytest.mark.parametrize("case", SPOILT)
def test_the_round_goes_on_without_it(case):
    step, change, reason = SPOILT[case]
    made = spoilt(step, change)
    total = made.round().reduce(Toy.UPDATE)
    # whoever uploaded is in the sum, whatever it says afterwards
    assert exact(made, total, NAMES if step in UPLOADED else REST)
    (note,) = made.transcript.left_out
    assert (note.client, note.step, note.round) == (LIAR, step, 1)
    assert re.search(reason, note.reason)
    assert LIAR in note.reason
    assert not [name for name in REST if name in note.reason.replace("others", "")]
    made.courier._transport.on = False  # type: ignore[attr-defined]
    assert exact(made, made.round(2).reduce(Toy.UPDATE), NAMES)  # and it is asked again


def test_shares_beyond_the_field_are_nobodys_and_the_sum_is_exact():
    """Whoever reveals them may only pass on what their dealer sent, so nobody is left out for it."""
    made = spoilt("unmask", entry("shares", lambda v: v | 255))
    assert exact(made, made.round().reduce(Toy.UPDATE), NAMES)
    assert not made.transcript.left_out


@pytest.mark.parametrize("case", ["another layout", "real numbers", "too many words"])
def test_without_sorting_the_same_bytes_end_the_round(case, monkeypatch):
    step, change, reason = SPOILT[case]
    monkeypatch.setattr(server.Masked, "check", lambda *_: None)
    monkeypatch.setattr(Bound, "split_valid", lambda self, replies: (replies, {}))
    made = spoilt(step, change)
    with pytest.raises(HostileMessage, match=reason):
        made.round().reduce(Toy.UPDATE)
    assert made.transcript.opened == []


@pytest.mark.parametrize("case", ["a signature by nobody", "a key that its signature is not of"])
def test_a_server_that_does_not_know_the_roster_has_all_others_refuse(case):
    """The honest refuse a deck with a wrong signature in it: whoever spoilt it has ended the sum of all."""
    step, change, _ = SPOILT[case]
    made = spoilt(step, change)
    made.courier._transport.roster = {}  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="A signature does not belong to identity"):
        made.round().reduce(Toy.UPDATE)
    assert made.transcript.opened == []


def lows(made: Session) -> Callable[[bytes], bytes]:
    """Keys of low order, which agree on a secret that everybody knows, signed by their owner."""

    def change(raw: bytes) -> bytes:
        message = Message.from_bytes(raw)
        tree = message.tree()
        place = dataclasses.replace(_scope(message), cohort=NAMES)
        said = advertisements.statement(place, LIAR, LOW_ORDER, bytes(tree["commitment"]))
        signed = made.parties[LIAR].identity.sign(said)
        tree = {**tree, "public": np.zeros(32, "u1"), "signature": np.frombuffer(signed, "u1")}
        return dataclasses.replace(message, body=wire.encode(tree)).to_bytes()

    return change


def _scope(message: Message) -> Scope:
    return Scope(message.run, message.round, message.exchange, message.channel, ())


def test_a_signed_key_of_low_order_leaves_its_owner_out():
    made = session(masked(), names=NAMES).set_up()
    made.courier._transport = Spoiling(made, "advertise", lows(made))
    assert exact(made, made.round().reduce(Toy.UPDATE), REST)


def test_a_client_that_was_told_something_else_is_left_out_and_the_sum_is_exact():
    """A byte of the model that changed on the way to one client: its masks are of another sum (A5)."""
    made = told_otherwise()
    assert exact(made, made.round().reduce(Toy.UPDATE, {"times": 1.0}), REST)
    (note,) = made.transcript.left_out
    assert "given something else than the others" in note.reason


def test_uploads_that_do_not_say_what_they_are_bound_to_open_noise(monkeypatch):
    monkeypatch.setattr(server.Masked, "binding_mark", lambda *_: "")
    made = told_otherwise()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)  # the tally is noise too: a warning half of the time
        total = made.round().reduce(Toy.UPDATE, {"times": 1.0})
    assert total.contributors == NAMES
    assert np.abs(total.total["w"].numpy()).max() > 10  # five numbers of at most one each


def told_otherwise() -> Session:
    made = session(masked(), names=NAMES).set_up()

    class Misread(Spoiling):
        def reach(self, requests: Any) -> Any:
            requests = dict(requests)
            message = Message.from_bytes(requests[LIAR]) if LIAR in requests else None
            if message is not None and message.step == "answer":
                tree = {**message.tree(), "times": 0.5}
                requests[LIAR] = dataclasses.replace(message, body=wire.encode(tree)).to_bytes()
            return super().reach(requests)

    made.courier._transport = Misread(made, "", lambda raw: raw)
    return made


def test_a_client_that_shares_garbage_costs_the_one_that_it_was_for():
    """Who cannot open what it was sealed cannot mask: it is left out, and the reason names who shared it."""

    def garbage(value: np.ndarray) -> np.ndarray:
        value[0] ^= 1  # for the first of its neighbours, owner-0
        return value

    made = spoilt("share", entry("shares", garbage))
    total = made.round().reduce(Toy.UPDATE)
    assert exact(made, total, NAMES[1:])
    (note,) = made.transcript.left_out
    assert (note.client, note.step) == ("owner-0", "answer")
    assert note.reason == "what owner-2 shared with owner-0 does not open as its shares"


def test_too_many_liars_and_the_reasons_are_told():
    made = session(masked(), names=NAMES).set_up()

    class Several(Spoiling):
        def reach(self, requests: Any) -> Any:
            found = DirectCalls.reach(self, requests)
            return {n: raw if n in ("owner-0", "owner-1") else b"nonsense" for n, raw in found.items()}

    made.courier._transport = Several(made, "", lambda raw: raw)
    with pytest.raises(
        Refused, match=r"only 2 of 5 .* and 3 are needed: nothing was opened; owner-2's reply"
    ):
        made.round().reduce(Toy.UPDATE)
    assert tolerant_ask.REASONS_SHOWN == 3


def test_two_layouts_of_two_each_blame_nobody():
    made = session(masked(), names=NAMES[:4]).set_up()

    class Halves(Spoiling):
        def reach(self, requests: Any) -> Any:
            found = DirectCalls.reach(self, requests)
            for name in ("owner-0", "owner-1"):
                if Message.from_bytes(requests[name]).step == "answer":
                    found[name] = body(lambda t: {**t, "layout": Layout((("v", (5,)),)).to_text()})(
                        found[name]
                    )
            return found

    made.courier._transport = Halves(made, "", lambda raw: raw)
    with pytest.raises(HostileMessage, match="several forms, none of them more common"):
        made.round().reduce(Toy.UPDATE)
    assert made.transcript.left_out == []


@pytest.mark.parametrize("policy", [plaintext(), homomorphic()], ids=lambda p: p.name)
@pytest.mark.parametrize("case", ["cut", "no upload", "another layout"])
def test_where_no_drop_out_is_survived_the_round_ends_and_names_the_client(policy, case):
    step, change, _ = SPOILT[case]
    made = spoilt(step, change, policy)
    with pytest.raises(HostileMessage, match=LIAR):
        made.round().reduce(Toy.UPDATE)
    assert made.transcript.opened == []


def test_an_identity_that_is_not_on_the_roster():
    made = session(masked(), names=NAMES).set_up()
    made.parties[LIAR].identity = Identity.generate()
    made.courier._transport = Spoiling(made, "", lambda raw: raw)
    assert exact(made, made.round().reduce(Toy.UPDATE), REST)
