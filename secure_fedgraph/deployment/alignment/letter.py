"""Letters: what the owners of an alignment send each other, and the server only carries."""

from __future__ import annotations

from dataclasses import dataclass, field

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage

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
