"""A table as it was read: columns of trimmed words or of types, and the rows' numbers in their file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.loading import postponed

pc = postponed("pyarrow.compute")


@dataclass(frozen=True)
class Table:
    """One file's rows.

    Args:
        where: whose file it is, for messages, such as ``--silo bank-a: nodes.csv``.
        columns: trimmed name -> array of pyarrow: words without spaces around them, or whole numbers, real
            numbers, booleans, dates. An empty cell is null.
        rows: the number of each row in the file as a person counts: the line of names is row 1, where there
            is one.
        separator: what stands between two cells; empty where the file has types of its own.
        unread: columns of types that are not read -> the type.
        notes: what was repaired on reading.
    """

    where: str
    columns: Mapping[str, Any] = field(repr=False)
    rows: np.ndarray = field(repr=False)
    separator: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, index: int, column: str) -> str:
        """The place of a cell, for messages."""
        return f"{self.where}, row {int(self.rows[index])}, column {column[:60]!r}"

    def kept(self, which: np.ndarray, *notes: str) -> Table:
        """The rows of a mask or of numbers, with notes on why the others are left out."""
        if which.dtype == bool:
            which = np.flatnonzero(which)
        rows = postponed("pyarrow").array(which.astype(np.int64))
        columns = {name: values.take(rows) for name, values in self.columns.items()}
        return replace(self, columns=columns, rows=self.rows[which], notes=(*self.notes, *notes))

    def find(self, wanted: str) -> str | None:
        """The column that is called so, whatever its case; None where none is.

        Raises:
            BadInput: where several are, and none in just these letters.
        """
        if wanted in self.columns:
            return wanted
        found = [name for name in self.columns if name.casefold() == wanted.casefold()]
        if len(found) > 1:
            raise BadInput(
                f"{self.where} has columns {found[0]!r} and {found[1]!r}, and each may be {wanted!r}: rename "
                "one"
            )
        if not found and (kind := self.unread.get(wanted)):
            raise BadInput(
                f"{self.where}: column {wanted[:60]!r} is of type {kind[:60]}, which is no number, word or "
                "date: save it as one, or leave it out"
            )
        return found[0] if found else None

    def renamed(self, wanted: Sequence[str]) -> Table:
        """With these names for columns that are called so but for case, each noted."""
        read = [name for name in wanted if name not in self.unread]  # an ignored one may be of any type
        names = {name: found for name in read if (found := self.find(name)) not in (None, name)}
        if not names:
            return self
        back = {found: name for name, found in names.items()}
        notes = tuple(f"column {found!r} is taken for {name!r}" for name, found in names.items())
        columns = {back.get(name, name): values for name, values in self.columns.items()}
        return replace(self, columns=columns, notes=(*self.notes, *notes))


def empty_cells(column: Any) -> np.ndarray:
    """Which cells hold nothing."""
    return np.asarray(pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False))
