"""Two owners find out whether they hold the same digest, and neither gets anything to try guesses against.

A digest of few rows could be guessed, names of rows being no secrets: whoever is sent one tries names until
one fits. So the digest is taken as a password. The owners agree on a key by it (SPEKE, ISO/IEC 11770-4) and
show each other that they got the same. A run of it tests one guess, and the other side notices.
"""

from __future__ import annotations

import hmac

import numpy as np

from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import Secret, derive
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.deployment.alignment.points import Blinding
from secure_fedgraph.deployment.alignment.terms import POINT_BYTES

TAG_BYTES = 32


class Equality(Secret):
    """One side of one comparison.

    Guarantees:
        - tags fit where both digests are the same, and else not;
        - a side that holds another digest learns that alone.

    Needs:
        - a fresh one for every comparison, and a context that names it.

    Args:
        digest: what this side holds.
        context: the same bytes at both ends: which comparison this is.
    """

    __slots__ = ("_blinding", "_context", "point")

    def __init__(self, digest: bytes, context: bytes) -> None:
        self._blinding = Blinding()
        self._context = context
        self.point: bytes = self._blinding.of_texts([digest.hex()])[0].tobytes()

    def tag(self, theirs: bytes, by: str) -> bytes:
        """What the side of that name shows the other.

        Args:
            theirs: the other side's point.
            by: who shows it; so that a tag that is sent back proves nothing.

        Raises:
            HostileMessage: where ``theirs`` is no point, or this side's own.
        """
        if len(theirs) != POINT_BYTES or theirs == self.point:
            raise HostileMessage("a comparison got its own point back, or something that is no point")
        shared = self._blinding.of_points(np.frombuffer(theirs, dtype=np.uint8)[None])[0].tobytes()
        ends = b"".join(sorted((self.point, theirs)))
        info = {"purpose": "alignment equality", "context": self._context, "ends": ends, "by": by}
        return derive(shared, wire.encode(info), TAG_BYTES)

    def fits(self, theirs: bytes, by: str, tag: bytes) -> bool:
        """Whether the side that showed ``tag`` holds the same digest."""
        return hmac.compare_digest(self.tag(theirs, by), tag)
