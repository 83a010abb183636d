"""Frames: a letter on a stream, with its lengths before it.

``deployment/flower/app/client_app.py`` writes and reads the same, and imports nothing of this package.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.deployment.letters import LARGEST, Letter, checked

HEAD = struct.Struct(">4sQBQ")
"""Magic, node id, bytes of the kind, bytes of the body."""
MAGIC = b"SFG1"
MOST_OF_A_KIND = 16
PIECE = 2**20
"""Bytes that are read at once: a frame that promises more than it has takes no memory for the promise."""


@dataclass(frozen=True)
class Head:
    """The beginning of a frame, checked, before its body is read.

    Args:
        node: under which number the sender signed in at the SuperLink.
        kind: of the letter.
        size: bytes of the body.
    """

    node: int
    kind: str
    size: int


def framed(letter: Letter, node: int) -> tuple[bytes, bytes]:
    """A letter as it is written: what stands before the body, and the body."""
    kind = letter.kind.encode()
    return HEAD.pack(MAGIC, node, len(kind), len(letter.body)) + kind, letter.body


def head_from(way: socket.socket, kinds: Iterable[str]) -> Head | None:
    """Reads the beginning of a frame.

    Args:
        way: the stream.
        kinds: which kinds of letters may come.

    Returns:
        The head; None where the other side has closed the stream.

    Raises:
        HostileMessage: for anything else than a frame, another kind, a body that is too large, a cut frame.
        OSError: where the stream breaks, or nothing comes in its time.
    """
    first = way.recv(1)
    if not first:
        return None
    magic, node, length, size = HEAD.unpack(first + _exactly(way, HEAD.size - 1))
    if magic != MAGIC:
        raise HostileMessage("this is no frame of secure-fedgraph: write a new app with 'server flower-app'")
    if not 0 < length <= MOST_OF_A_KIND:
        raise HostileMessage(f"a frame with a kind of {length} bytes, and 1 to {MOST_OF_A_KIND} are read")
    if size > LARGEST:
        raise HostileMessage(f"a frame with a body of {size} bytes, and at most {LARGEST} are read")
    kind = _exactly(way, length).decode("ascii", "replace")
    return Head(node, checked(kind, b"", kinds).kind, size)


def body_from(way: socket.socket, head: Head) -> Letter:
    """Reads what follows a head.

    Raises:
        HostileMessage: for a cut frame.
        OSError: where the stream breaks, or nothing comes in its time.
    """
    return Letter(head.kind, _exactly(way, head.size))


def _exactly(way: socket.socket, size: int) -> bytes:
    held = bytearray()
    while len(held) < size:
        piece = way.recv(min(PIECE, size - len(held)))
        if not piece:
            raise HostileMessage(f"a frame was cut after {len(held)} of {size} bytes")
        held += piece
    return bytes(held)
