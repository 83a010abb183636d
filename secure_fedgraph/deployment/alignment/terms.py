"""What all owners of one alignment know beforehand, and every signature and seal in it is bound to."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import KEY_BYTES
from secure_fedgraph.core.errors import BadInput, check_whole, wrong_type
from secure_fedgraph.deployment.alignment.letter import POINT_BYTES

SMALLEST_CLASS = 64
MOST_ROWS = 2**24
MOST_PARTIES = 256
_LONGEST_WORD = 256
_AROUND = 4096
"""Bytes of a letter beside its points: names of entries, the seal, and a short rest."""


def new_alignment() -> str:
    """A name for an alignment that no other has: 32 hexadecimal digits from the operating system."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Terms:
    """The terms of one alignment. Every owner makes them from its own copy of the federation's file.

    Guarantees:
        - owners whose terms differ in anything refuse each other's first letter.

    Needs:
        - identity keys that came from outside: not from the server.

    Args:
        federation: the digest of the federation's file, 32 bytes.
        alignment: the name of this alignment; no two have the same.
        parties: each owner's Ed25519 identity key, in the roster's order. The first is the hub.
        rows_at_most: how many rows an owner may bring. Public; it also bounds how many names a lying owner
            can try.

    Raises:
        BadInput: for fewer than two owners, two owners of one key, and values that are out of range.
    """

    federation: bytes
    alignment: str
    parties: Mapping[str, bytes]
    rows_at_most: int
    digest: bytes = field(init=False, repr=False)
    """32 bytes that stand for all of it."""

    def __post_init__(self) -> None:
        check_whole("rows_at_most", self.rows_at_most, 1)
        if self.rows_at_most > MOST_ROWS:
            raise BadInput(f"rows_at_most = {self.rows_at_most}: give at most {MOST_ROWS}")
        if not isinstance(self.federation, bytes) or len(self.federation) != hashlib.sha256().digest_size:
            raise BadInput("federation is no digest of 32 bytes: give that of the federation's file")
        _check_word("alignment", self.alignment)
        if not 2 <= len(self.parties) <= MOST_PARTIES:
            raise BadInput(f"parties names {len(self.parties)}: rows are aligned between 2 to {MOST_PARTIES}")
        for name, public in self.parties.items():
            _check_word("a name in parties", name)
            if not isinstance(public, bytes) or len(public) != KEY_BYTES:
                raise BadInput(f"parties: the identity key of {name} has not {KEY_BYTES} bytes")
        if len(set(self.parties.values())) < len(self.parties):
            raise BadInput("parties: two names have one identity key; give each owner its own")
        object.__setattr__(self, "parties", dict(self.parties))
        stated = {
            "purpose": "alignment",
            "federation": self.federation,
            "alignment": self.alignment,
            "names": list(self.parties),
            "keys": b"".join(self.parties.values()),
            "rows at most": self.rows_at_most,
        }
        object.__setattr__(self, "digest", hashlib.sha256(wire.encode(stated)).digest())

    @property
    def names(self) -> tuple[str, ...]:
        """All owners, the hub first."""
        return tuple(self.parties)

    @property
    def hub(self) -> str:
        """The owner that matches the rows."""
        return self.names[0]

    @property
    def members(self) -> tuple[str, ...]:
        """All owners but the hub."""
        return self.names[1:]

    def padded(self, rows: int) -> int:
        """The size class of a number of rows: the next power of two, from 64, but not above ``rows_at_most``.

        Raises:
            BadInput: for more rows than an owner may bring.

        >>> terms = Terms(bytes(32), "a", {"bank": bytes(32), "shop": bytes([1] * 32)}, rows_at_most=3000)
        >>> [terms.padded(rows) for rows in (1, 65, 1025, 2049)]
        [64, 128, 2048, 3000]
        """
        if rows > self.rows_at_most:
            raise BadInput(
                f"a table of {rows} rows, and the federation's rows_at_most is {self.rows_at_most}: all "
                "owners raise it together, or this one brings fewer"
            )
        return min(max(SMALLEST_CLASS, 1 << (rows - 1).bit_length()), self.rows_at_most)

    def is_class(self, size: int) -> bool:
        """Whether a number is the size class of some number of rows."""
        return 1 <= size <= self.rows_at_most and self.padded(size) == size

    @property
    def most_bytes(self) -> int:
        """Of one letter. The transport refuses a larger one before it reads it."""
        return 2 * POINT_BYTES * self.padded(self.rows_at_most) + 64 * len(self.parties) + _AROUND


def _check_word(where: str, word: object) -> None:
    if not isinstance(word, str):
        raise wrong_type(where, word, "give a word")
    if not 0 < len(word.encode(errors="replace")) <= _LONGEST_WORD or not word.isprintable():
        raise BadInput(f"{where} is {word[:40]!a}: give a word of 1 to {_LONGEST_WORD} printable bytes")
