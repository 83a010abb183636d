"""What is hashed once in an exchange, and envelopes that have one form."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from secure_fedgraph.core import message, wire
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.message import Message, digest_alike, hashed_once

REQUEST = Message("run", 2, 5, "hidden", "answer", "server", "a", ("a", "b"), wire.encode({"x": 1}))


def parts(last: int) -> wire.Parts:
    return wire.Parts([b"head", memoryview(np.arange(999, dtype=np.uint8) + last).cast("B")])


def test_equal_parts_are_hashed_once_and_others_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed, real = [], message._hashed
    monkeypatch.setattr(message, "_hashed", lambda raw: (hashed.append(raw), real(raw))[1])
    expected = {last: hashlib.sha256(bytes(parts(last))).hexdigest() for last in (0, 1)}
    with hashed_once():
        assert [digest_alike(parts(last)) for last in (0, 0, 1, 0, 1)] == [
            expected[last] for last in (0, 0, 1, 0, 1)
        ]
        assert len(hashed) == 2
        split = wire.Parts([bytes(parts(0))])  # the same bytes, in other pieces
        assert digest_alike(split) == expected[0]
    assert digest_alike(parts(0)) == expected[0]


@pytest.mark.parametrize("missed", [b"", b"exchanges"])
def test_an_envelopes_form_is_the_formats(missed: bytes) -> None:
    request = Message(**{**vars(REQUEST), "missed": missed})
    fields = {**vars(request), "cohort": "a\nb"}
    if not missed:
        del fields["missed"]
    raw = wire.encode(fields)
    assert request.to_bytes() == raw
    assert Message.from_bytes(raw) == request
    backwards = wire.encode(dict(reversed(fields.items())))  # another order is read the general way
    assert Message.from_bytes(backwards) == request


def test_damaged_envelopes_are_refused_as_ever() -> None:
    raw = REQUEST.to_bytes()
    for cut in range(len(raw)):
        with pytest.raises(HostileMessage):
            Message.from_bytes(raw[:cut])
    with pytest.raises(HostileMessage):
        Message.from_bytes(raw + b"x")
    for at in range(len(raw)):
        changed = raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :]
        try:
            read = Message.from_bytes(changed)
        except HostileMessage:
            continue
        assert read == _generally(changed)


def _generally(raw: bytes) -> Message:
    tree = wire.decode(raw, views=True)
    return Message(**{**tree, "cohort": tuple(tree["cohort"].split("\n")) if tree["cohort"] else ()})
