"""What travels between the server and a silo: letters, each with a kind and a body, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from secure_fedgraph.core.errors import HostileMessage

HELLO, BEGIN, ASK, SAVE, CHARGES, EXAM, ALIGN = "hello", "begin", "ask", "save", "charges", "exam", "align"
RELEASE = "release"
KINDS = (HELLO, BEGIN, ASK, SAVE, CHARGES, EXAM, ALIGN, RELEASE)
"""What a server may send."""
DONE, FAILED = "done", "failed"
ANSWERS = (DONE, FAILED)
"""What a silo may answer with."""
LARGEST = 2**31
"""Bytes of a body."""


@dataclass(frozen=True)
class Letter:
    """One message of the way, in either direction.

    Args:
        kind: one of :data:`KINDS` to a silo, one of :data:`ANSWERS` from it.
        body: bytes of the wire format, or a protocol message.
    """

    kind: str
    body: bytes


def checked(kind: object, body: object, kinds: Iterable[str]) -> Letter:
    """A letter as it came.

    Raises:
        HostileMessage: for another kind, or a body that is too large or no bytes.
    """
    if not isinstance(kind, str) or kind not in kinds:
        raise HostileMessage(f"a letter of kind {str(kind)[:40]!r}; known are {', '.join(kinds)}")
    if not isinstance(body, bytes) or len(body) > LARGEST:
        raise HostileMessage(f"the body of a {kind} letter is no bytes, or has more than {LARGEST >> 30} GiB")
    return Letter(kind, body)


class Post(Protocol):
    """The server's end of the way. It knows silos by name, and nothing of what letters say."""

    def node_of(self, silo: str) -> int:
        """The number under which a silo signs in."""
        ...

    def send(self, letters: Mapping[str, Letter]) -> dict[str, str]:
        """Sends each silo its letter.

        Returns:
            Silo -> the ticket under which its answer comes.

        Raises:
            OSError: where the way is broken.
        """
        ...

    def collect(self, tickets: Iterable[str]) -> dict[str, Letter | None]:
        """Answers that have come since: ticket -> letter, or None where none will come.

        It may wait a moment for one.

        Raises:
            OSError: where the way is broken.
        """
        ...

    def close(self) -> None:
        """Ends the way."""
        ...
