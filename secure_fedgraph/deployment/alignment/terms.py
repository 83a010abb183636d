"""What all owners of one alignment know beforehand, and every signature and seal in it is bound to."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput, HostileMessage

# Letters: what the owners of an alignment send each other, and the server only carries.

OFFER, REQUEST, ANSWER, PLACES = "offer", "request", "answer", "places"
CHECK, PROOF, RECEIPT, MANIFEST = "check", "proof", "receipt", "manifest"
STEPS = (OFFER, REQUEST, ANSWER, PLACES, CHECK, PROOF, RECEIPT, MANIFEST)
"""In their order. Both sides offer; then the hub and its members write in turn."""
POINT_BYTES = 33
"""Of one point of P-256, compressed."""


@dataclass(frozen=True)
class Letter:
    """One step from one owner to another.

    The names are what the courier says. Signature or seal confirm them: who changes one, makes a letter that
    its reader refuses.

    Args:
        step: one of :data:`STEPS`.
        sender, recipient: names of the roster.
        body: an offer is signed and in the open; everything else is sealed to the recipient.
    """

    step: str
    sender: str
    recipient: str
    body: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """As it travels."""
        return wire.encode(
            {"step": self.step, "sender": self.sender, "recipient": self.recipient, "body": self.body}
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> Letter:
        """The inverse.

        Needs:
            - bytes no longer than ``Terms.most_bytes`` and the names: the transport checks that first.

        Raises:
            HostileMessage: for anything else.

        >>> Letter.from_bytes(Letter("offer", "bank", "shop", b"...").to_bytes())
        Letter(step='offer', sender='bank', recipient='shop')
        """
        tree = wire.decode(raw)
        kinds = {"step": str, "sender": str, "recipient": str, "body": bytes}
        if tree.keys() != kinds.keys() or any(type(tree[key]) is not kind for key, kind in kinds.items()):
            raise HostileMessage("a letter of an alignment cannot be read")
        return cls(**tree)


SMALLEST_CLASS = 64
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
        - keys and numbers of a federation's file, which was checked, and not from the server.

    Args:
        federation: the digest of the federation's file, 32 bytes.
        alignment: the name of this alignment; no two have the same.
        parties: each owner's Ed25519 identity key, in the roster's order. The first is the hub.
        rows_at_most: how many rows an owner may bring. Public; it also bounds how many names a lying owner
            can try.

    Raises:
        BadInput: for fewer than two owners, and for a name of an alignment that is no word.
    """

    federation: bytes
    alignment: str
    parties: Mapping[str, bytes]
    rows_at_most: int
    digest: bytes = field(init=False, repr=False)
    """32 bytes that stand for all of it."""

    def __post_init__(self) -> None:
        if not 0 < len(self.alignment) <= _LONGEST_WORD or not self.alignment.isprintable():
            raise BadInput(f"alignment is {self.alignment[:40]!a}: give a word of printable characters")
        if not 2 <= len(self.parties) <= MOST_PARTIES:
            raise BadInput(f"parties names {len(self.parties)}: rows are aligned between 2 to {MOST_PARTIES}")
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
