"""``silo align``: the silo's half of finding the common rows over the federation's way."""

from __future__ import annotations

import logging
import secrets

from torch_geometric.data import Data

from secure_fedgraph.backends.failures import failure_body
from secure_fedgraph.deployment.alignment import Alignment, Hub, Member, Side, Terms
from secure_fedgraph.deployment.alignment import Letter as AlignmentLetter
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.greeting import greeted
from secure_fedgraph.deployment.letters import ALIGN, DONE, FAILED, Letter
from secure_fedgraph.deployment.own_data import data_at, keep_alignment
from secure_fedgraph.deployment.silo_folder import Keys, SiloFolder
from secure_fedgraph.errors import BadInput, HostileMessage, SecureFedGraphError
from secure_fedgraph.protocol import wire

_LOG = logging.getLogger("secure_fedgraph.silo")
END = "end"
MOST_LETTERS = 512
"""Letters of one alignment that a silo is handed at once."""


def terms_of_alignment(approved: Approved, alignment: str) -> Terms:
    """The terms of one alignment under a federation's file."""
    federation = approved.federation
    return Terms(bytes.fromhex(approved.digest), alignment, federation.roster, federation.data.rows_at_most)


def packed(letters: list[AlignmentLetter]) -> wire.Tree:
    """Letters as a tree of the wire format."""
    return {f"letter {number}": letter.to_bytes() for number, letter in enumerate(letters)}


def unpacked(tree: wire.Tree) -> list[AlignmentLetter]:
    """The inverse.

    Raises:
        HostileMessage: for something else than letters, or too many.
    """
    if len(tree) > MOST_LETTERS:
        raise HostileMessage(f"{len(tree)} letters at once, and at most {MOST_LETTERS} are read")
    letters = []
    for value in tree.values():
        if not isinstance(value, bytes):
            raise HostileMessage("a letter of an alignment is no bytes")
        letters.append(AlignmentLetter.from_bytes(value))
    return letters


class Aligner:
    """One silo while rows are aligned: it answers greetings and letters of alignments, and nothing else.

    Guarantees:
        - one alignment at a time: a new one begins anew, and nothing of the last is kept;
        - what it keeps at the end is its own rows that all silos have, in the common order, in its folder.

    Args:
        folder: the silo's.
        keys: its keys.
        approved: the file that it approved.
        rows: the names of its rows.
    """

    def __init__(self, folder: SiloFolder, keys: Keys, approved: Approved, rows: list[str]) -> None:
        self._folder, self._keys, self._approved, self._rows = folder, keys, approved, rows
        self.name = folder.name_in(approved)
        self.session = secrets.token_hex(8)
        self._side: Side | None = None
        self.aligned: Alignment | None = None
        self.ended = False

    def hello(self, letter: Letter, node: int) -> Letter:
        """Shows who it is."""
        return greeted(letter, node, self._approved, self._keys.identity, self.session, self.name, {})

    def answer(self, letter: Letter) -> Letter:
        """Answers one letter; an error becomes an answer too."""
        try:
            if letter.kind != ALIGN:
                raise HostileMessage(
                    f"{self.name} is aligning rows: start it with 'silo start' for anything else"
                )
            return Letter(DONE, wire.encode(self._answer(wire.decode(letter.body))))
        except SecureFedGraphError as error:
            _LOG.warning("refused: %s", error)
            return Letter(FAILED, failure_body(error))

    def _answer(self, asked: wire.Tree) -> wire.Tree:
        alignment, *_ = (asked.pop("alignment", None),)
        if not isinstance(alignment, str):
            raise HostileMessage("letters of an alignment without its name")
        if asked.pop(END, 0):
            if self._side is None or self._side.result is None or self._side.terms.alignment != alignment:
                raise HostileMessage(f"{self.name} has not finished alignment {alignment[:40]!r}")
            self.aligned = self._side.result
            keep_alignment(self._folder, self._approved, self.aligned)
            self.ended = True
            return {}
        letters = unpacked(asked)
        if not letters:
            self._side = self._begun(alignment)
            _LOG.info("alignment %s begun", alignment)
            return packed(self._side.start())
        side = self._side
        if side is None or side.terms.alignment != alignment:
            raise HostileMessage(f"{self.name} has not begun alignment {alignment[:40]!r}")
        return packed([new for letter in letters for new in side.receive(letter)])

    def _begun(self, alignment: str) -> Side:
        terms = terms_of_alignment(self._approved, alignment)
        identity = self._keys.identity
        if self.name == self._approved.federation.names[0]:
            return Hub(terms, identity, self._rows)
        return Member(terms, identity, self._rows, self.name)


def row_names_in(name: str, data: str, approved: Approved) -> list[str]:
    """The names of a silo's rows.

    Raises:
        BadInput: where the federation has none to align, or the data have no such column.
    """
    rows = approved.federation.data.rows
    if not rows:
        raise BadInput("this federation is of rows that each silo has alone: there is nothing to align")
    held = data_at(name, data, rows)
    given = held.get(rows) if isinstance(held, Data) else None
    if given is None:
        raise BadInput(f"--data {data}: it has no column {rows!r} that names the rows")
    return [str(one) for one in (given.tolist() if hasattr(given, "tolist") else given)]
