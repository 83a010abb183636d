"""Frames: the units of data between the operator and a client's process, on a pipe."""

from __future__ import annotations

import struct
from typing import IO

TOLD, ROSTER, ASK, SAVE, LOAD = b"T", b"R", b"A", b"S", b"L"
DONE, FAILED = b"+", b"!"
LARGEST = 2**34
"""Bytes of one frame. What a header promises is checked against this and never allocated ahead."""
LARGEST_FAILURE = 2**16
"""The same for a client's failure: a class and a sentence."""
PIECE = 2**20
"""Bytes that are read at once: memory grows with what has arrived, not with what was promised."""
_HEAD = struct.Struct("<cQ")


class Ended(Exception):
    """The other end is gone, or sends no valid frames."""


def write(pipe: IO[bytes], kind: bytes, body: bytes | memoryview = b"") -> None:
    """Sends one frame.

    Raises:
        Ended: where the other end does not read.
    """
    try:
        pipe.write(_HEAD.pack(kind, len(body)))
        pipe.write(body)
        pipe.flush()
    except (OSError, ValueError):
        raise Ended from None


def read(pipe: IO[bytes]) -> tuple[bytes, bytes]:
    """The kind and the body of the next frame.

    Raises:
        Ended: where there is none, or half of one.
    """
    coming = Incoming()
    while not coming.whole:
        piece = pipe.read(coming.wants)
        if not piece:
            raise Ended
        coming.take(piece)
    return coming.kind, coming.body


class Incoming:
    """A frame that arrives in pieces; its sender may stop in the middle or promise too much."""

    def __init__(self) -> None:
        self.kind = b""
        self._head = b""
        self._left = 0
        self._pieces: list[bytes] = []

    @property
    def whole(self) -> bool:
        """Whether all of it has arrived."""
        return bool(self.kind) and not self._left

    @property
    def wants(self) -> int:
        """How many bytes to read next, at most."""
        return min(self._left, PIECE) if self.kind else _HEAD.size - len(self._head)

    @property
    def body(self) -> bytes:
        """The bytes after the head."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def take(self, piece: bytes) -> None:
        """The next bytes, no more than were wanted.

        Raises:
            Ended: for a frame that promises more than the largest.
        """
        if self.kind:
            self._pieces.append(piece)
            self._left -= len(piece)
            return
        self._head += piece
        if len(self._head) == _HEAD.size:
            self.kind, self._left = _HEAD.unpack(self._head)
            if self._left > (LARGEST_FAILURE if self.kind == FAILED else LARGEST):
                raise Ended


class Outgoing:
    """A frame that is sent in pieces; its receiver may not read it."""

    def __init__(self, kind: bytes, body: bytes) -> None:
        self._parts = [memoryview(part) for part in (_HEAD.pack(kind, len(body)), body) if part]

    @property
    def whole(self) -> bool:
        """Whether all of it was sent."""
        return not self._parts

    @property
    def piece(self) -> memoryview:
        """What to write next."""
        return self._parts[0]

    def left(self, written: int) -> None:
        """Notes that so many bytes of the piece were sent."""
        rest = self._parts[0][written:]
        self._parts[:1] = [rest] if len(rest) else []
