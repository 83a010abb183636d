"""What a paper's table is here: its cells, the runs behind them, and how near ours have to come."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from secure_fedgraph.core.errors import BadInput

Selection = Literal["last", "best_by_validation", "best_on_test"]
"""Which round counts: the last, the best by validation, or, as some papers print, the best on test."""


@dataclass(frozen=True)
class Case:
    """One experiment, which several cells may read.

    Args:
        name: short and of its own; runs of equal cases are shared by tables.
        config: keys of an :class:`~secure_fedgraph.experiment.config.Experiment`.
        minutes: about how long one seed takes on one core, for the estimate before anything has run.
    """

    name: str
    config: Mapping[str, Any] = field(hash=False)
    minutes: float = 5.0

    @property
    def folder(self) -> str:
        """A folder's name."""
        return re.sub(r"[^a-z0-9.+=]+", "-", self.name.lower())


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Args:
        row, column: as the paper names them.
        paper: its figure; None where it prints none and ours stands beside.
        tolerance: how far ours may be from it.
        measure: a key of a result's accuracies (``global``, ``local``, ``auc``, ``mae``), or ``fairness``.
        case: the experiment; None where it cannot be run.
        alone: for ``fairness``: the same owners by themselves.
        why_not: why it cannot be run.
        source: where the paper's figure is from, where not from the paper's own table.
    """

    row: str
    column: str
    paper: float | None
    tolerance: float
    measure: str = "global"
    case: Case | None = None
    alone: Case | None = None
    why_not: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if (self.case is None) != bool(self.why_not):
            raise BadInput(f"{self.row}, {self.column}: a cell has a case, or the reason why it has none")


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        name: ``fedego-2``: the algorithm, and the table's number in its paper.
        title: what it shows.
        paper: where it is from.
        seeds: how many the paper has, or the anchors ask for.
        selection: which round counts.
        cells: row by row.
    """

    name: str
    title: str
    paper: str
    seeds: int
    selection: Selection
    cells: tuple[Cell, ...]

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every experiment that the cells read, each once."""
        every = [case for cell in self.cells for case in (cell.case, cell.alone) if case is not None]
        return tuple({case.name: case for case in every}.values())

    def only(self, words: tuple[str, ...]) -> PaperTable:
        """The cells whose row or column holds one of the words; all where there are none.

        Raises:
            BadInput: for a word that no cell holds.
        """
        held = {
            word: [one for one in self.cells if word and word.lower() in f"{one.row} {one.column}".lower()]
            for word in words
        }
        if lost := [word for word, cells in held.items() if not cells]:
            raise BadInput(
                f"--only {lost[0][:60]!r}: no cell of {self.name} is named so; --finished prints them all"
            )
        kept = tuple(one for one in self.cells if any(one in cells for cells in held.values()))
        return replace(self, cells=kept) if words else self
