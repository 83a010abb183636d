"""Messages: what identifies them, and what a hostile envelope holds."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.message import MAX_COHORT, Message, digest

REQUEST = Message("r", 2, 5, "update", "answer", "server", "a", ("a", "b"), b"body")


def tree(**changes):
    found = wire.decode(REQUEST.to_bytes())
    found.update(changes)
    return {k: v for k, v in found.items() if v is not None}


def test_golden_envelope():
    # nine entries; the cohort is one text, a name a line; the payloads lie in the order of the entries
    raw = REQUEST.to_bytes()
    assert raw.startswith(b"SFG\x01\x09\x00\x03\x00run")
    assert raw.endswith(b"updateanswerservera" + b"a\nb" + b"body")
    assert Message.from_bytes(raw) == REQUEST
    assert Message.from_bytes(dataclasses.replace(REQUEST, cohort=()).to_bytes()).cohort == ()


def test_a_reply_turns_sender_and_recipient_round_and_keeps_the_numbers():
    reply = REQUEST.reply(b"x")
    assert (reply.sender, reply.recipient, reply.round, reply.exchange) == ("a", "server", 2, 5)
    assert (reply.run, reply.channel, reply.step, reply.cohort) == ("r", "update", "answer", ())
    assert reply.answers(REQUEST)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "s"},
        {"round": 3},
        {"exchange": 6},
        {"channel": "metrics"},
        {"step": "open"},
        {"sender": "b"},
        {"recipient": "referee"},
        {"cohort": ("a",)},
    ],
)
def test_anything_else_is_no_reply(change):
    assert not dataclasses.replace(REQUEST.reply(b"x"), **change).answers(REQUEST)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Message) if f.name != "missed"])
def test_a_missing_field_and_one_of_another_type(field):
    with pytest.raises(HostileMessage, match=f"lacks its field '{field}', or the field has another type"):
        Message.from_bytes(wire.encode(tree(**{field: None})))
    with pytest.raises(HostileMessage, match=field):
        Message.from_bytes(wire.encode(tree(**{field: 1.5})))


def test_missed_exchanges_are_bytes_and_some():
    for wrong in ("", "text", 1.5, b""):
        with pytest.raises(HostileMessage, match="missed"):
            Message.from_bytes(wire.encode({**tree(), "missed": wrong}))
    assert bytes(Message.from_bytes(wire.encode({**tree(), "missed": b"some"})).missed) == b"some"


def test_fields_too_many_and_a_cohort_too_large():
    with pytest.raises(HostileMessage, match="fields that the format does not know"):
        Message.from_bytes(wire.encode(tree(extra=1)))
    with pytest.raises(HostileMessage, match="names a cohort of 1000001"):
        Message.from_bytes(wire.encode(tree(cohort="\n" * MAX_COHORT)))


def test_a_record_has_blake3s_digest():
    # the first and the third of BLAKE3's published test vectors
    assert digest(b"") == "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digest(b"\x00\x01") == "blake3:7b7015bb92cf0b318037702a6cdd81dee41224f734684c2c122cd6359cb1ee63"


def test_parts_have_the_digest_of_the_bytes_that_they_are():
    packed = wire.pack({"first": torch.arange(5000.0), "second": torch.ones(7), "third": "text"})
    assert len(packed.buffers) > 1
    assert digest(packed) == digest(b"".join(packed.buffers))


def test_a_digest_is_of_what_the_bytes_are_now() -> None:
    changeable = bytearray(b"first")
    view = memoryview(changeable)
    assert digest(b"first") == digest(view) == digest(bytes(changeable))
    changeable[:] = b"other"
    assert digest(view) == digest(wire.Parts([b"ot", b"her"])) == digest(b"other") != digest(b"first")
