"""Frames: what passes between the operator and a client's process, one after another on a pipe."""

from __future__ import annotations

import struct
from typing import IO

TOLD, ROSTER, ASK, SAVE, LOAD = b"T", b"R", b"A", b"S", b"L"
DONE, FAILED = b"+", b"!"
LARGEST = 2**34
"""Checked before anything is allocated."""
LARGEST_FAILURE = 2**16
"""The same of what a client says it failed with: a class and a sentence."""
_HEAD = struct.Struct("<cQ")


class Ended(Exception):
    """The other end is gone, or does not speak in frames."""


def write(pipe: IO[bytes], kind: bytes, body: bytes | memoryview = b"") -> None:
    """Sends one frame.

    Raises:
        Ended: where nobody reads.
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
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise Ended
    kind, size = _HEAD.unpack(head)
    if size > (LARGEST_FAILURE if kind == FAILED else LARGEST):
        raise Ended
    body = pipe.read(size)
    if len(body) < size:
        raise Ended
    return kind, body
