"""What the hub and a member have in common: a fresh key, signed and sealed letters, each step once."""

from __future__ import annotations

import hashlib
import os
import secrets
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import KEY_BYTES, AgreementKey, Identity, Secret, seal, unseal, verify
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.text import printable
from secure_fedgraph.deployment.alignment.points import library
from secure_fedgraph.deployment.alignment.result import Alignment
from secure_fedgraph.deployment.alignment.terms import OFFER, POINT_BYTES, Letter, Terms

SIGNATURE_BYTES = 64
PAD = -1
"""The slot of an invented name, which fills a set up to its size class."""
PAD_BYTES = 32
_Kind = TypeVar("_Kind", str, int, bytes, np.ndarray)


class Side(Secret):
    """One owner in one alignment, as a machine that takes letters and gives letters.

    Guarantees:
        - a letter of another sender, recipient, step, alignment, federation or roster, one that was changed,
          cut or came before, and one out of its turn is refused, and ends this owner's alignment;
        - nothing is kept but :attr:`result`, which is None until the last step: begin again with a new
          alignment after a crash;
        - it holds secret keys, and does not leave its process.

    Needs:
        - every letter delivered once.

    Args:
        terms: what all owners know beforehand.
        identity: this owner's signing key.
        rows: the names of its rows, in the order of its table.

    Raises:
        BadInput: for rows that cannot be used, more than the terms allow, an identity that is not the
            roster's, and where ``openmined-psi`` is not installed.
    """

    __slots__ = ("_ended", "_identity", "_key", "_keys", "_rows", "name", "result", "terms")

    def __init__(self, terms: Terms, identity: Identity, rows: Sequence[str], name: str) -> None:
        library()
        if name not in terms.parties:
            raise BadInput(f"{name[:60]!a} is not on the roster: {', '.join(terms.names)} are")
        if terms.parties[name] != identity.public:
            raise BadInput(f"the roster has another identity key for {name}: give the owner's own")
        self.name = name
        self.terms = terms
        self.result: Alignment | None = None
        if not rows or len(set(rows)) < len(rows):
            raise BadInput(f"{name}: {len(rows)} rows have {len(set(rows))} names: give each one of its own")
        self._rows = tuple(rows)
        terms.padded(len(rows))
        self._identity = identity
        self._key = AgreementKey.generate()
        self._keys: dict[str, bytes] = {}
        self._ended = False

    @abstractmethod
    def start(self) -> list[Letter]:
        """This owner's first letters: offers, between the hub and every member."""

    def receive(self, letter: Letter) -> list[Letter]:
        """Takes a letter, and gives what this owner writes because of it.

        Args:
            letter: as the courier gave it; nothing in it is trusted.

        Raises:
            HostileMessage: for a letter that no honest owner writes. This owner's alignment has ended then.
            BadInput: where no row is at every owner.
        """
        if self._ended:
            raise HostileMessage(f"{self.name} has ended this alignment: begin a new one")
        try:
            if letter.recipient != self.name or letter.sender not in self.terms.parties:
                raise _hostile(letter, f"came to {self.name}, and is not between it and the roster")
            if len(letter.body) > self.terms.most_bytes:
                raise _hostile(letter, f"has {len(letter.body)} bytes, of {self.terms.most_bytes} at most")
            self._check_turn(letter)
            return self._take(letter)
        except BaseException:
            self._end()
            raise

    @abstractmethod
    def _wants(self, sender: str) -> str | None:
        """The one step that may come next from that owner, if any."""

    @abstractmethod
    def _take(self, letter: Letter) -> list[Letter]:
        """As :meth:`receive`, of a letter whose turn it is."""

    def _end(self) -> None:
        """No letter is taken any more, and no key is kept."""
        self._ended = True
        self._keys.clear()

    def _finish(self, salt: bytes, digest: bytes, rows: Sequence[str]) -> None:
        self._end()
        self.result = Alignment(
            owner=self.name,
            owners=self.terms.names,
            federation=self.terms.federation.hex(),
            alignment=self.terms.alignment,
            terms=self.terms.digest.hex(),
            salt=salt.hex(),
            digest=digest.hex(),
            rows=tuple(rows),
        )

    def _check_turn(self, letter: Letter) -> None:
        wanted = self._wants(letter.sender)
        if wanted is None or letter.step != wanted:
            raise _hostile(letter, f"is out of turn: {wanted or 'nothing'} comes next")

    def _offer(self, recipient: str) -> Letter:
        signature = self._identity.sign(self._offer_statement(self.name, self._key.public))
        body = wire.encode({"public": self._key.public, "signature": signature})
        return Letter(OFFER, self.name, recipient, body)

    def _accept_offer(self, letter: Letter) -> None:
        tree = wire.decode(letter.body)
        public = self._entry(tree, "public", bytes, KEY_BYTES, letter, 2)
        signature = self._entry(tree, "signature", bytes, SIGNATURE_BYTES, letter, 2)
        try:
            verify(self.terms.parties[letter.sender], signature, self._offer_statement(letter.sender, public))
        except HostileMessage:
            raise _hostile(
                letter,
                "has a key that its sender did not sign for this alignment: compare the federation's files",
            ) from None
        self._keys[letter.sender] = public

    def _sealed(self, step: str, recipient: str, tree: wire.Tree) -> Letter:
        context = self._letter_context(step, self.name, recipient)
        key = self._key.shared_with(self._keys[recipient], context)
        return Letter(step, self.name, recipient, seal(key, wire.encode(tree), context))

    def _opened(self, letter: Letter) -> wire.Tree:
        context = self._letter_context(letter.step, letter.sender, letter.recipient)
        key = self._key.shared_with(self._keys[letter.sender], context)
        try:
            opened = unseal(key, letter.body, context)
        except HostileMessage as error:
            raise _hostile(letter, f"does not open: {error}") from None
        return wire.decode(opened)

    def _entry(
        self, tree: wire.Tree, key: str, kind: type[_Kind], size: int, letter: Letter, entries: int
    ) -> _Kind:
        """One value of a letter, once the letter holds as many as it should, of that type and size."""
        value = tree.get(key)
        sized = not isinstance(value, bytes) or len(value) == size
        if len(tree) != entries or type(value) is not kind or not sized:
            raise _hostile(letter, f"holds another {key!r}")
        return value

    def _points(self, tree: wire.Tree, key: str, letter: Letter, entries: int) -> np.ndarray:
        """Points of a letter: as many as a size class has, and each once, as no honest owner repeats one."""
        points = self._entry(tree, key, np.ndarray, 0, letter, entries)
        if points.dtype != np.uint8 or points.ndim != 2 or points.shape[1] != POINT_BYTES:
            raise _hostile(letter, f"holds no points in {key!r}")
        if not self.terms.is_class(len(points)):
            raise _hostile(
                letter, f"holds {len(points)} points, which is no size class up to {self.terms.rows_at_most}"
            )
        if len({point.tobytes() for point in points}) < len(points):
            raise _hostile(letter, f"holds a point twice in {key!r}")
        return points

    def _shuffled(self) -> list[int]:
        """This owner's rows, filled up to their size class with invented ones, in a secret order."""
        slots = [*range(len(self._rows)), *[PAD] * (self.terms.padded(len(self._rows)) - len(self._rows))]
        secrets.SystemRandom().shuffle(slots)
        return slots

    def _texts(self, slots: Sequence[int]) -> list[str]:
        """What is mapped to a point for each slot: a row's name, or a random one that no other owner has.

        Hashed together with the terms, so that points of one alignment say nothing in another.
        """
        names = (
            b"pad" + os.urandom(PAD_BYTES) if slot == PAD else b"row" + self._rows[slot].encode()
            for slot in slots
        )
        return [hashlib.sha256(self.terms.digest + name).hexdigest() for name in names]

    def _receipt(self, by: str, digest: bytes, rows: int) -> bytes:
        """What an owner signs once it holds the rows in their order."""
        return self._statement("alignment receipt", by=by, digest=digest, rows=rows)

    def _equality_context(self, member: str) -> bytes:
        return self._statement("alignment equality", hub=self.terms.hub, member=member)

    def _offer_statement(self, name: str, public: bytes) -> bytes:
        return self._statement("alignment offer", name=name, public=public)

    def _letter_context(self, step: str, sender: str, recipient: str) -> bytes:
        return self._statement("alignment letter", step=step, sender=sender, recipient=recipient)

    def _statement(self, purpose: str, **facts: str | int | bytes) -> bytes:
        return wire.encode({"purpose": purpose, "terms": self.terms.digest, **facts})


def _hostile(letter: Letter, why: str) -> HostileMessage:
    step, sender, recipient = (
        printable(str(word), 60) for word in (letter.step, letter.sender, letter.recipient)
    )
    return HostileMessage(f"{step!r} from {sender} to {recipient} {why}")
