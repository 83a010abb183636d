"""One client's refusal, budget, error or odd words end nobody's round but its own.

A sum that survives drop-outs goes on without it, in this process and in others; what it says is cut, and
steers no terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lying import Played, play

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.backends.failures import failure_body, failure_in
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import (
    BadInput,
    BudgetExhausted,
    HostileMessage,
    Refused,
    SecureFedGraphError,
    WrongType,
)
from secure_fedgraph.core.text import LONGEST, printable
from secure_fedgraph.policies import homomorphic, masked
from secure_fedgraph.protocol import courier as courier_module
from secure_fedgraph.protocol import transport
from secure_fedgraph.protocol.transport import DirectCalls, Lost

REFUSER = "owner-1"
ESCAPES = "\x1b]0;owned\x07\x1b[31mred\u202e\r\n"
SETTINGS: dict[str, Any] = {"hidden": (4, 4), "fanout": (2, 2)}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=4, nodes=80, features=8, seed=0)


def played(federation: sfg.Federation, error: Exception, who: Callable[[str], bool], policy=masked) -> Played:
    made = play(ALGORITHMS["fedsage"](**SETTINGS), federation, policy())
    for name, client in made.clients.items():
        if who(name):
            client._upload = _raising(error)  # type: ignore[method-assign]
    return made


def _raising(error: Exception) -> Callable[..., Any]:
    def upload(*_: Any) -> Any:
        raise error

    return upload


ERRORS = [
    BadInput("no such column"),
    Refused("not today"),
    BudgetExhausted("nothing is left"),
    HostileMessage("who are you"),
    KeyError("layers.0"),
    RuntimeError(f"grad {ESCAPES}" + "x" * 5000),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_round_goes_on_without_it(federation, error):
    made = played(federation, error, lambda name: name == REFUSER)
    found = made.round(1).reduce(made.algorithm.UPDATE, given=made.state)
    assert set(found.contributors) == set(made.names) - {REFUSER}
    (note,) = made.courier.transcript.left_out
    assert note.client == REFUSER
    assert len(note.reason) <= LONGEST
    assert note.reason.isprintable()
    if not isinstance(error, SecureFedGraphError):
        assert note.reason.startswith(type(error).__name__)


@pytest.mark.parametrize("error", ERRORS[:3], ids=lambda error: type(error).__name__)
def test_as_it_was_it_ended_it_for_all(federation, error, monkeypatch):
    """The mend taken out: only clients that are lost or send nonsense are gone on without."""
    only = (Lost, HostileMessage)
    monkeypatch.setattr(courier_module, "TOLERATE_ALL", only)
    monkeypatch.setattr("secure_fedgraph.round.TOLERATE_ALL", only)
    made = played(federation, error, lambda name: name == REFUSER)
    with pytest.raises(type(error)):
        made.round(1).reduce(made.algorithm.UPDATE, given=made.state)


def test_where_all_fail_the_first_error_is_raised_with_its_place(federation):
    error = KeyError("layers.0")
    made = played(federation, error, lambda name: True)
    made.clients[made.names[0]]._upload = _raising(Refused("not today"))  # type: ignore[method-assign]
    with pytest.raises(KeyError) as raised:
        made.round(1).reduce(made.algorithm.UPDATE, given=made.state)
    assert raised.value is error
    assert "upload" in [entry.name for entry in raised.traceback]


def test_what_needs_everybody_still_ends_with_the_error(federation):
    made = played(federation, BadInput("no such column"), lambda name: name == REFUSER, homomorphic)
    with pytest.raises(BadInput, match="no such column"):
        made.round(1).reduce(made.algorithm.UPDATE, given=made.state)


def test_a_transport_reports_errors_in_the_place_of_replies():
    def door(raw: bytes) -> bytes:
        raise ZeroDivisionError

    found = DirectCalls({"a": door, "b": lambda raw: raw}).reach({"a": b"1", "b": b"2"})
    assert isinstance(found["a"], ZeroDivisionError)
    assert found["b"] == b"2"
    assert transport.Answer == bytes | Exception


class Moody(sfg.FedAvg):
    """One client's own algorithm fails, by what it holds."""

    name = "moody"

    @sfg.FedAvg.UPDATE.answer
    def update(self, client: Any, given: Any) -> Any:
        if client.name == REFUSER:
            raise ValueError(f"the node with words {client.graph.x[0].tolist()}{ESCAPES}")
        return super().update(client, given)


def test_a_run_goes_on_without_it(federation):
    made = sfg.train(Moody(**SETTINGS), federation, masked(), rounds=1)
    (note,) = {(note.client, note.step) for note in made.transcript.left_out}
    assert note == (REFUSER, "answer")
    reason = made.transcript.left_out[0].reason
    assert "ValueError" in reason
    assert reason.isprintable()
    assert all(torch.isfinite(value).all() for value in made.state.values())


FRAMES: dict[str, bytes] = {
    "no class": wire.encode({"text": "x"}),
    "no text": wire.encode({"class": "Refused"}),
    "nothing": wire.encode({}),
    "a number for a class": wire.encode({"class": 7, "text": "x"}),
    "an array for a class": wire.encode({"class": torch.zeros(3), "text": "x"}),
    "bytes for a text": wire.encode({"class": "Refused", "text": b"x"}),
    "no tree": b"nonsense",
    "empty": b"",
    "no class of ours": wire.encode({"class": "annotations", "text": "x"}),
    "another thing of ours": wire.encode({"class": "unknown_name", "text": "x"}),
    "a dunder": wire.encode({"class": "__class__", "text": "x"}),
    "escapes": wire.encode({"class": f"Refused{ESCAPES}", "text": ESCAPES}),
    "escapes in ours": wire.encode({"class": "Refused", "text": ESCAPES}),
    "long": wire.encode({"class": "C" * 9000, "text": "x" * 9000}),
    "long, ours": wire.encode({"class": "Refused", "text": "x" * 9000}),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_failure_frame_is_an_error_of_ours_whatever_is_in_it(frame):
    found = failure_in(frame, "owner-0's process", "its own output says more")
    assert isinstance(found, SecureFedGraphError)
    assert str(found).isprintable()
    assert len(str(found)) < LONGEST + 200


def test_an_error_that_quotes_own_code_leaves_without_its_sentence():
    """A class of the user's own may be named by a label, and the sentence names the class."""
    body = failure_body(WrongType("channel 'means': an answer returns an Upload, not LabelIs3"))
    assert b"LabelIs3" not in body
    assert "WrongType" in str(failure_in(body, "owner-0's process", "its own output says more"))


def test_printable_text_has_a_length_and_no_controls():
    assert printable("plain, with é and 字") == "plain, with é and 字"
    assert printable(ESCAPES).isprintable()
    assert len(printable("x" * 5000)) == LONGEST
