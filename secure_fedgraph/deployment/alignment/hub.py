"""The hub's side: it matches its rows with each member's, draws the order, and has everybody sign it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secure_fedgraph.core.crypto import Identity, verify
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.deployment.alignment import terms as agreed
from secure_fedgraph.deployment.alignment.equality import TAG_BYTES, Equality
from secure_fedgraph.deployment.alignment.points import Blinding
from secure_fedgraph.deployment.alignment.rows import digest_of_rows
from secure_fedgraph.deployment.alignment.side import PAD, SIGNATURE_BYTES, Side

# A member's side: it answers the hub, and learns which of its rows all owners have.

SALT_BYTES = 32
NOWHERE = 2**32 - 1
"""Fills the list of places up to the size class."""
FROM_THE_HUB = (agreed.OFFER, agreed.REQUEST, agreed.PLACES, agreed.PROOF, agreed.MANIFEST)


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

    def __init__(self, terms: agreed.Terms, identity: Identity, rows: Sequence[str], name: str) -> None:
        super().__init__(terms, identity, rows, name)
        if name == terms.hub:
            raise BadInput(f"{name} is the first of the roster and so the hub: make a Hub")
        self._step = 0
        self._slots: list[int] = []
        self._found: list[str] = []
        self._salt = self._hub_point = b""
        self._equality: Equality | None = None

    def start(self) -> list[agreed.Letter]:
        """An offer to the hub."""
        return [self._offer(self.terms.hub)]

    def _wants(self, sender: str) -> str | None:
        return FROM_THE_HUB[self._step] if sender == self.terms.hub else None

    def _take(self, letter: agreed.Letter) -> list[agreed.Letter]:
        steps = (self._offered, self._requested, self._told_places, self._proved, self._told_all)
        written = steps[self._step](letter)
        self._step += 1
        return written

    def _offered(self, letter: agreed.Letter) -> list[agreed.Letter]:
        self._accept_offer(letter)
        return []

    def _requested(self, letter: agreed.Letter) -> list[agreed.Letter]:
        requested = self._points(self._opened(letter), "points", letter, 1)
        self._slots = self._shuffled()
        blinding = Blinding()
        tree = {
            "points": blinding.of_texts(self._texts(self._slots)),
            "request": blinding.of_points(requested),
        }
        return [self._sealed(agreed.ANSWER, letter.sender, tree)]

    def _told_places(self, letter: agreed.Letter) -> list[agreed.Letter]:
        tree = self._opened(letter)
        count = self._entry(tree, "count", int, 0, letter, 4)
        self._salt = self._entry(tree, "salt", bytes, SALT_BYTES, letter, 4)
        self._hub_point = self._entry(tree, "point", bytes, agreed.POINT_BYTES, letter, 4)
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
        return [self._sealed(agreed.CHECK, letter.sender, {"point": self._equality.point, "tag": tag})]

    def _proved(self, letter: agreed.Letter) -> list[agreed.Letter]:
        tag = self._entry(self._opened(letter), "tag", bytes, TAG_BYTES, letter, 1)
        if self._equality is None or not self._equality.fits(self._hub_point, letter.sender, tag):
            raise HostileMessage(
                f"{letter.sender} has other rows than {self.name} in the common order: it matched them "
                "wrongly, or lies"
            )
        digest = digest_of_rows(self.terms.digest, self._salt, self._found)
        # Only now: a signature over a digest is something to try guesses against, too.
        signature = self._identity.sign(self._receipt(self.name, digest, len(self._found)))
        return [self._sealed(agreed.RECEIPT, letter.sender, {"signature": signature})]

    def _told_all(self, letter: agreed.Letter) -> list[agreed.Letter]:
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


FROM_A_MEMBER = (agreed.OFFER, agreed.ANSWER, agreed.CHECK, agreed.RECEIPT)


@dataclass
class _Pair:
    """What the hub has with one member.

    Args:
        came: how many of the member's letters were taken.
        slots: which row of the hub's stands where in the request.
        size: of the member's set, padded.
        places: the hub's row -> where in the member's set the same name stands.
        tag: what the hub shows the member to prove that it holds the same rows.
        signature: the member's receipt.
    """

    blinding: Blinding = field(default_factory=Blinding)
    came: int = 0
    slots: list[int] = field(default_factory=list)
    size: int = 0
    places: dict[int, int] = field(default_factory=dict)
    equality: Equality | None = None
    tag: bytes = b""
    signature: bytes = b""


class Hub(Side):
    """The first owner of the roster.

    Guarantees:
        - the order of the rows is drawn from the operating system's randomness and says nothing about any
          owner's own;
        - a member is told places in its own set, never a name: a member that lies about the matching is
          noticed, and has nothing to try guesses against;
        - it ends with rows only if every member signed the same rows in the same order.

    Args:
        as of :class:`Side`.
    """

    __slots__ = ("_digest", "_ordered", "_pairs", "_salt")

    def __init__(self, terms: agreed.Terms, identity: Identity, rows: Sequence[str]) -> None:
        super().__init__(terms, identity, rows, terms.hub)
        self._pairs = {name: _Pair() for name in terms.members}
        self._ordered: list[int] = []
        self._salt = self._digest = b""

    def start(self) -> list[agreed.Letter]:
        """An offer to every member."""
        return [self._offer(name) for name in self.terms.members]

    def _end(self) -> None:
        super()._end()
        self._pairs.clear()

    def _wants(self, sender: str) -> str | None:
        pair = self._pairs.get(sender)
        if pair is None or pair.came == len(FROM_A_MEMBER):
            return None
        # a request follows each offer at once; everything later waits for the slowest member
        written = max(1, min(other.came for other in self._pairs.values()))
        return FROM_A_MEMBER[pair.came] if pair.came <= written else None

    def _take(self, letter: agreed.Letter) -> list[agreed.Letter]:
        pair = self._pairs[letter.sender]
        steps = (self._offered, self._answered, self._checked, self._signed)
        written = steps[pair.came](letter, pair)
        pair.came += 1
        if written or min(other.came for other in self._pairs.values()) < pair.came:
            return written  # the others' letters of this step are still to come
        return {agreed.ANSWER: self._tell_places, agreed.CHECK: self._prove, agreed.RECEIPT: self._tell_all}[
            letter.step
        ]()

    def _offered(self, letter: agreed.Letter, pair: _Pair) -> list[agreed.Letter]:
        self._accept_offer(letter)
        pair.slots = self._shuffled()
        points = pair.blinding.of_texts(self._texts(pair.slots))
        return [self._sealed(agreed.REQUEST, letter.sender, {"points": points})]

    def _answered(self, letter: agreed.Letter, pair: _Pair) -> list[agreed.Letter]:
        tree = self._opened(letter)
        theirs = self._points(tree, "points", letter, 2)
        own = self._points(tree, "request", letter, 2)
        if len(own) != len(pair.slots):
            raise HostileMessage(
                f"{letter.sender} answered {len(own)} points, and was asked {len(pair.slots)}"
            )
        pair.size = len(theirs)
        place = {point.tobytes(): number for number, point in enumerate(pair.blinding.of_points(theirs))}
        for slot, point in zip(pair.slots, own, strict=True):
            number = place.get(point.tobytes())
            if number is None:
                continue
            if slot == PAD:
                raise HostileMessage(f"{letter.sender} says that it has a name that {self.name} invented")
            pair.places[slot] = number
        return []

    def _tell_places(self) -> list[agreed.Letter]:
        common = set.intersection(*(set(pair.places) for pair in self._pairs.values()))
        if not common:
            raise BadInput(
                "no row is at every owner: check that all name their rows the same way, letter by letter"
            )
        self._ordered = sorted(common)
        secrets.SystemRandom().shuffle(self._ordered)
        self._salt = os.urandom(SALT_BYTES)
        names = [self._rows[row] for row in self._ordered]
        self._digest = digest_of_rows(self.terms.digest, self._salt, names)
        return [self._told(name, pair) for name, pair in self._pairs.items()]

    def _told(self, member: str, pair: _Pair) -> agreed.Letter:
        places = np.full(pair.size, NOWHERE, dtype=np.uint32)
        places[: len(self._ordered)] = [pair.places[row] for row in self._ordered]
        pair.equality = Equality(self._digest, self._equality_context(member))
        tree = {
            "count": len(self._ordered),
            "salt": self._salt,
            "point": pair.equality.point,
            "places": places,
        }
        return self._sealed(agreed.PLACES, member, tree)

    def _checked(self, letter: agreed.Letter, pair: _Pair) -> list[agreed.Letter]:
        tree = self._opened(letter)
        point = self._entry(tree, "point", bytes, agreed.POINT_BYTES, letter, 2)
        tag = self._entry(tree, "tag", bytes, TAG_BYTES, letter, 2)
        if pair.equality is None or not pair.equality.fits(point, letter.sender, tag):
            raise HostileMessage(
                f"{letter.sender} has other rows than {self.name} in the common order: it answered for "
                "names that it does not have, or lies now"
            )
        pair.tag = pair.equality.tag(point, self.name)
        return []

    def _prove(self) -> list[agreed.Letter]:
        return [self._sealed(agreed.PROOF, name, {"tag": pair.tag}) for name, pair in self._pairs.items()]

    def _signed(self, letter: agreed.Letter, pair: _Pair) -> list[agreed.Letter]:
        signature = self._entry(self._opened(letter), "signature", bytes, SIGNATURE_BYTES, letter, 1)
        statement = self._receipt(letter.sender, self._digest, len(self._ordered))
        try:
            verify(self.terms.parties[letter.sender], signature, statement)
        except HostileMessage:
            raise HostileMessage(f"{letter.sender} did not sign the rows that {self.name} gave it") from None
        pair.signature = signature
        return []

    def _tell_all(self) -> list[agreed.Letter]:
        own = self._identity.sign(self._receipt(self.name, self._digest, len(self._ordered)))
        signatures = own + b"".join(pair.signature for pair in self._pairs.values())
        written = [self._sealed(agreed.MANIFEST, name, {"signatures": signatures}) for name in self._pairs]
        self._finish(self._salt, self._digest, [self._rows[row] for row in self._ordered])
        return written
