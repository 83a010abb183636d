"""``silo align``: the silo's half of finding the common rows over the federation's way."""

from __future__ import annotations

import logging
import secrets

from torch_geometric.data import Data

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.deployment.alignment import Alignment, Hub, Member, Side, Terms
from secure_fedgraph.deployment.alignment import Letter as AlignmentLetter
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.greeting import greeted
from secure_fedgraph.deployment.own_data import data_at, keep_alignment
from secure_fedgraph.deployment.resident import answered
from secure_fedgraph.deployment.silo_folder import ALIGNMENTS, Keys, SiloFolder
from secure_fedgraph.deployment.silo_messages import ALIGN, Letter
from secure_fedgraph.graph.silos.columns import table_of

_LOG = logging.getLogger("secure_fedgraph.silo")
END = "end"
MOST_ALIGNMENTS = 3
"""Alignments that a silo begins under one file, finished or not.

In each of them another owner may try ``rows_at_most`` names on this silo's rows, so this bounds how many it
may try in all. It is above one, since an alignment in which a process or the way breaks has to be begun
again.
"""
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
        - it begins at most :data:`MOST_ALIGNMENTS` under one file, counted in its folder before anything is
          answered, so a process that is started again goes on counting;
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
        return answered(self.name, self._folder, lambda: self._body(letter))

    def _body(self, letter: Letter) -> bytes:
        if letter.kind != ALIGN:
            raise HostileMessage(
                f"{self.name} is aligning rows: start it with 'silo start' for anything else"
            )
        return wire.encode(self._answer(wire.decode(letter.body)))

    def _answer(self, asked: wire.Tree) -> wire.Tree:
        alignment, end = asked.pop("alignment", None), asked.pop(END, 0)
        if not isinstance(alignment, str) or type(end) is not int:
            raise HostileMessage("letters of an alignment without its name, or with an end that is no number")
        if end:
            if self._side is None or self._side.result is None or self._side.terms.alignment != alignment:
                raise HostileMessage(f"{self.name} has not finished alignment {alignment[:40]!r}")
            keep_alignment(self._folder, self._approved, self._side.result)
            self.aligned = self._side.result
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
        begun = self._folder.times_begun(self._approved, ALIGNMENTS)
        if begun >= MOST_ALIGNMENTS:
            raise Refused(
                f"{self.name} has begun {begun} alignments under this file and begins no more, since each "
                "lets other owners guess its rows: make a new file with 'federation init', which every silo "
                "approves"
            )
        side = self._made(alignment)
        self._folder.note_begun(self._approved, begun + 1, ALIGNMENTS)
        return side

    def _made(self, alignment: str) -> Side:
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
    held = data_at(name, data, rows, approved.federation.tables)
    if not isinstance(held, Data):
        raise BadInput(f"--data {data}: it is a list of graphs; give one table, with the column {rows!r}")
    return list(table_of(name, held, rows).names)
