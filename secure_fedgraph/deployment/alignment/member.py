"""A member's side: it answers the hub, and learns which of its rows all owners have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secure_fedgraph.core.crypto import Identity, verify
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.deployment.alignment.equality import TAG_BYTES, Equality
from secure_fedgraph.deployment.alignment.points import Blinding
from secure_fedgraph.deployment.alignment.rows import digest_of_rows
from secure_fedgraph.deployment.alignment.side import PAD, SIGNATURE_BYTES, Side
from secure_fedgraph.deployment.alignment.terms import (
    ANSWER,
    CHECK,
    MANIFEST,
    OFFER,
    PLACES,
    POINT_BYTES,
    PROOF,
    RECEIPT,
    REQUEST,
    Letter,
    Terms,
)

SALT_BYTES = 32
NOWHERE = 2**32 - 1
"""Fills the list of places up to the size class."""
FROM_THE_HUB = (OFFER, REQUEST, PLACES, PROOF, MANIFEST)


class Member(Side):
    """An owner that is not the hub.

    Guarantees:
        - it tells the hub which of the names that the hub brought are its own too, and no other owner
          anything; other names leave it only as points that nobody can try guesses against;
        - it ends with rows of its own, each once, and only if every owner on the roster signed the same rows
          in the same order.

    Args:
        name: which owner of the roster this is.

    Raises:
        BadInput: as :class:`Side`, and for the hub's name.
    """

    __slots__ = ("_equality", "_found", "_hub_point", "_salt", "_slots", "_step")

    def __init__(self, terms: Terms, identity: Identity, rows: Sequence[str], name: str) -> None:
        super().__init__(terms, identity, rows, name)
        if name == terms.hub:
            raise BadInput(f"{name} is the first of the roster and so the hub: make a Hub")
        self._step = 0
        self._slots: list[int] = []
        self._found: list[str] = []
        self._salt = self._hub_point = b""
        self._equality: Equality | None = None

    def start(self) -> list[Letter]:
        """An offer to the hub."""
        return [self._offer(self.terms.hub)]

    def _wants(self, sender: str) -> str | None:
        return FROM_THE_HUB[self._step] if sender == self.terms.hub else None

    def _take(self, letter: Letter) -> list[Letter]:
        steps = (self._offered, self._requested, self._told_places, self._proved, self._told_all)
        written = steps[self._step](letter)
        self._step += 1
        return written

    def _offered(self, letter: Letter) -> list[Letter]:
        self._accept_offer(letter)
        return []

    def _requested(self, letter: Letter) -> list[Letter]:
        requested = self._points(self._opened(letter), "points", letter, 1)
        self._slots = self._shuffled()
        blinding = Blinding()
        tree = {
            "points": blinding.of_texts(self._texts(self._slots)),
            "request": blinding.of_points(requested),
        }
        return [self._sealed(ANSWER, letter.sender, tree)]

    def _told_places(self, letter: Letter) -> list[Letter]:
        tree = self._opened(letter)
        count = self._entry(tree, "count", int, 0, letter, 4)
        self._salt = self._entry(tree, "salt", bytes, SALT_BYTES, letter, 4)
        self._hub_point = self._entry(tree, "point", bytes, POINT_BYTES, letter, 4)
        places = self._entry(tree, "places", np.ndarray, 0, letter, 4)
        if places.dtype != np.uint32 or places.shape != (len(self._slots),) or not 0 < count <= len(places):
            raise HostileMessage(f"{letter.sender} told {self.name} places that are no list of its rows")
        told = [int(place) for place in places[:count]]
        if len(set(told)) < count or any(
            place >= len(self._slots) or self._slots[place] == PAD for place in told
        ):
            raise HostileMessage(
                f"{letter.sender} told {self.name} of {count} common rows, and they are not rows of its own, "
                "each once"
            )
        self._found = [self._rows[self._slots[place]] for place in told]
        digest = digest_of_rows(self.terms.digest, self._salt, self._found)
        self._equality = Equality(digest, self._equality_context(self.name))
        tag = self._equality.tag(self._hub_point, self.name)
        return [self._sealed(CHECK, letter.sender, {"point": self._equality.point, "tag": tag})]

    def _proved(self, letter: Letter) -> list[Letter]:
        tag = self._entry(self._opened(letter), "tag", bytes, TAG_BYTES, letter, 1)
        if self._equality is None or not self._equality.fits(self._hub_point, letter.sender, tag):
            raise HostileMessage(
                f"{letter.sender} has other rows than {self.name} in the common order: it matched them "
                "wrongly, or lies"
            )
        digest = digest_of_rows(self.terms.digest, self._salt, self._found)
        # Only now: a signature over a digest is something to try guesses against, too.
        signature = self._identity.sign(self._receipt(self.name, digest, len(self._found)))
        return [self._sealed(RECEIPT, letter.sender, {"signature": signature})]

    def _told_all(self, letter: Letter) -> list[Letter]:
        names = self.terms.names
        size = SIGNATURE_BYTES * len(names)
        signatures = self._entry(self._opened(letter), "signatures", bytes, size, letter, 1)
        digest = digest_of_rows(self.terms.digest, self._salt, self._found)
        for number, name in enumerate(names):
            signature = signatures[number * SIGNATURE_BYTES : (number + 1) * SIGNATURE_BYTES]
            try:
                verify(self.terms.parties[name], signature, self._receipt(name, digest, len(self._found)))
            except HostileMessage:
                raise HostileMessage(
                    f"{name} did not sign the rows that {self.name} was given: {letter.sender} gave it "
                    "others, or lies"
                ) from None
        self._finish(self._salt, digest, self._found)
        return []
