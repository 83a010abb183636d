"""Letters: what the owners of an alignment send each other, and the server only carries."""

from __future__ import annotations

from dataclasses import dataclass, field

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
