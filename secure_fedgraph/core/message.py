"""Messages: an envelope with sender, recipient, channel and exchange number, around a body."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
from blake3 import blake3

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage

ANSWER = "answer"
"""The step in which the algorithm's own work is asked for; every other step belongs to a carrier."""
CARRIER = "carrier/"
"""The prefix of the channel of a carrier's own set-up."""
MAX_COHORT = 1_000_000
MISSED = "missed"
RECORDED = "blake3:"
"""Begins the digests of a record. Records of earlier versions hold SHA-256, and nothing before it."""
MAX_ROUND = 1_000_000_000


@dataclass(frozen=True)
class Message:
    """One message between the server (or the referee) and a client, in either direction.

    Args:
        run: the run's public name, so that no message serves in two runs.
        round: the round, 0 for what comes before the first.
        exchange: the number of this ask, which never repeats in a run; the reply carries the same.
        channel: the channel's name, or ``carrier/<name>`` for a carrier's own set-up.
        step: :data:`ANSWER`, or a step of the carrier's protocol.
        sender, recipient: party names.
        cohort: who is asked under this number, in order; empty in replies.
        body: an encoded tree (:mod:`~secure_fedgraph.core.wire`); a view of the message as received.
        missed: exchanges that the recipient was not asked in, encoded by
            :mod:`~secure_fedgraph.core.carriers.history`; a field of the message only where there are any.
    """

    run: str
    round: int
    exchange: int
    channel: str
    step: str
    sender: str
    recipient: str
    cohort: tuple[str, ...]
    body: bytes | memoryview | wire.Parts
    missed: bytes | memoryview = b""

    def to_bytes(self) -> bytes:
        """What goes over the wire."""
        fields = {**vars(self), "cohort": "\n".join(self.cohort)}
        if not len(self.missed):
            del fields[MISSED]
        return wire.encode(fields)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Message:
        """The message that the bytes hold.

        Raises:
            HostileMessage: for bytes that hold none.
        """
        tree = wire.decode(raw, views=True)
        for key, kind in _FIELDS.items():
            if type(tree.get(key)) is not kind:
                raise HostileMessage(f"a message lacks its field {key!r}, or the field has another type")
        missed = tree.get(MISSED)
        if missed is not None and not (isinstance(missed, memoryview) and len(missed)):
            raise HostileMessage("a message reports missed exchanges, and none are in it")
        if len(tree) != len(_FIELDS) + (missed is not None):
            raise HostileMessage("a message has fields that the format does not know")
        if tree["round"] < 0 or tree["exchange"] < 0:
            raise HostileMessage("a message has a negative round or exchange number")
        if tree["round"] > MAX_ROUND:
            raise HostileMessage(
                f"a message is of round {tree['round']}, and no run has more than {MAX_ROUND}"
            )
        cohort = tuple(tree["cohort"].split("\n")) if tree["cohort"] else ()
        if len(cohort) > MAX_COHORT:
            raise HostileMessage(f"a message names a cohort of {len(cohort)}")
        return cls(**{**tree, "cohort": cohort})

    def tree(self) -> wire.Tree:
        """The decoded body; its arrays and bytes are read-only views of it."""
        body = bytes(self.body) if isinstance(self.body, wire.Parts) else self.body
        return wire.decode(body, views=True)

    def reply(self, body: bytes | memoryview | wire.Parts) -> Message:
        """The answer to this request, under its number."""
        return Message(
            run=self.run,
            round=self.round,
            exchange=self.exchange,
            channel=self.channel,
            step=self.step,
            sender=self.recipient,
            recipient=self.sender,
            cohort=(),
            body=body,
        )

    def answers(self, request: Message) -> bool:
        """Whether this is a reply to that request: same numbers, the other way round."""
        return self == request.reply(self.body)


_FIELDS: dict[str, type[str] | type[int] | type[memoryview]] = {
    "run": str,
    "round": int,
    "exchange": int,
    "channel": str,
    "step": str,
    "sender": str,
    "recipient": str,
    "cohort": str,
    "body": memoryview,
}


REMEMBERED = 2
"""Bodies of one exchange that are compared with the next before it is hashed."""


def digest(raw: bytes | memoryview | wire.Parts) -> str:
    """BLAKE3 of what was sent, as a record holds it; parts are read one after the other, and not joined.

    Collisions are as hard to find as those of SHA-256, and it takes less time. What parties agree on and
    sign (:mod:`~secure_fedgraph.core.carriers.history`, masks, seals) is SHA-256, of the wire format.

    >>> digest(b"abc")
    'blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85'
    """
    recorded = blake3()
    for part in raw.buffers if isinstance(raw, wire.Parts) else (raw,):
        recorded.update(part)
    return RECORDED + recorded.hexdigest()


def digest_alike(parts: wire.Parts) -> str:
    """SHA-256 of what one client was given, in an exchange that should give all clients the same.

    Within :func:`hashed_once`, parts are compared with earlier ones byte by byte, which is quicker than
    hashing. Only parts that differ are hashed. Their buffers must be read-only until the exchange is over.
    """
    known = _KNOWN.get()
    if known is None:
        return _hashed(parts)
    for earlier, found in known:
        if _equal(earlier, parts):
            return found
    known[:] = [(parts, _hashed(parts)), *known[: REMEMBERED - 1]]
    return known[0][1]


def _equal(one: wire.Parts, other: wire.Parts) -> bool:
    if one.length != other.length or len(one.buffers) != len(other.buffers):
        return False
    return all(
        len(a) == len(b) and np.array_equal(np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8))
        for a, b in zip(one.buffers, other.buffers, strict=True)
    )


@contextmanager
def hashed_once() -> Iterator[None]:
    """Within it the server and the clients in its process hash once what all clients are given alike."""
    before = _KNOWN.set([])
    try:
        yield
    finally:
        _KNOWN.reset(before)


def _hashed(parts: wire.Parts) -> str:
    hashed = hashlib.sha256()
    for part in parts.buffers:
        hashed.update(part)
    return hashed.hexdigest()


_KNOWN: ContextVar[list[tuple[wire.Parts, str]] | None] = ContextVar("what was hashed", default=None)
"""What was handed out in an exchange, and its digest: the last :data:`REMEMBERED`; None outside of
:func:`hashed_once`."""
