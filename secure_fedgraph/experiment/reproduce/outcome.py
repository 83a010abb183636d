"""What came of a table: ours beside the paper's, cell by cell, and whether it is near enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from secure_fedgraph.algorithms.fairgraphfl.fairness import correlation
from secure_fedgraph.experiment.reproduce.tables import Cell, PaperTable, Selection

SELECTIONS: tuple[Selection, ...] = ("last", "best_by_validation", "best_on_test")
LOWER_IS_BETTER = ("mae",)
Mark = Literal["reached", "better", "missed", "beside", "not possible", "failed", "to run"]
"""``reached``: within the tolerance; ``better``: beyond it on the good side; ``beside``: no figure to compare
with; ``failed``: its runs end with an error."""
Results = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""A case's name -> seed -> its ``result.json``."""


@dataclass(frozen=True)
class Score:
    """A mean over seeds, and its standard error; NaN with one seed."""

    mean: float
    standard_error: float
    each: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Score | None:
        """The score of some seeds; None where there is none."""
        found = [value for value in values if math.isfinite(value)]
        if not found:
            return None
        error = stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan
        return cls(fmean(found), error, tuple(found))

    def plain(self) -> dict[str, Any]:
        """As JSON: no error where there is one seed."""
        error = self.standard_error
        return {**asdict(self), "standard_error": None if math.isnan(error) else error}


@dataclass(frozen=True)
class Outcome:
    """One cell with what came of it."""

    cell: Cell
    scores: Mapping[Selection, Score]
    mark: Mark
    reason: str
    seconds: float | None

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        cell = self.cell
        return {
            "row": cell.row,
            "column": cell.column,
            "measure": cell.measure,
            "paper": cell.paper,
            "source": cell.source,
            "tolerance": cell.tolerance,
            "ours": {selection: score.plain() for selection, score in self.scores.items()},
            "mark": self.mark,
            "reason": self.reason,
            "seconds": self.seconds,
            "case": None if cell.case is None else cell.case.name,
            "config": None if cell.case is None else dict(cell.case.config),
        }


def outcomes(table: PaperTable, results: Results, failures: Mapping[str, str]) -> list[Outcome]:
    """Every cell of a table.

    Args:
        table: whose cells.
        results: what is finished.
        failures: a case's name -> why none of its runs is.
    """
    return [_outcome(cell, table.selection, results, failures) for cell in table.cells]


def counts(found: Sequence[Outcome]) -> dict[Mark, int]:
    """Mark -> how many cells have it."""
    marks = [outcome.mark for outcome in found]
    return {mark: marks.count(mark) for mark in dict.fromkeys(marks)}


def share_reached(found: Sequence[Outcome]) -> float:
    """Of the cells with a figure of a paper that can be run, the share within its tolerance."""
    possible = ("reached", "better", "missed", "failed", "to run")
    judged = [one.mark for one in found if one.cell.paper is not None and one.mark in possible]
    return judged.count("reached") / len(judged) if judged else math.nan


def _outcome(cell: Cell, selection: Selection, results: Results, failures: Mapping[str, str]) -> Outcome:
    if cell.case is None:
        return Outcome(cell, {}, "not possible", cell.why_not, None)
    mine = results.get(cell.case.name, {})
    beside = results.get(cell.alone.name, {}) if cell.alone is not None else None
    scores = {}
    for one in SELECTIONS:
        score = Score.of([_value(cell, seed, result, beside, one) for seed, result in sorted(mine.items())])
        if score is not None:
            scores[one] = score
    seconds = fmean(float(result["seconds"]) for result in mine.values()) if mine else None
    found = scores.get("last" if cell.measure == "fairness" else selection)
    why = failures.get(cell.case.name, "") if found is None else ""
    mark: Mark = ("failed" if why else "to run") if found is None else _mark(cell, found.mean)
    return Outcome(cell, scores, mark, why, seconds)


def _mark(cell: Cell, ours: float) -> Mark:
    if cell.paper is None:
        return "beside"
    if abs(ours - cell.paper) <= cell.tolerance:
        return "reached"
    return "better" if (ours < cell.paper) == (cell.measure in LOWER_IS_BETTER) else "missed"


def _value(
    cell: Cell,
    seed: int,
    result: Mapping[str, Any],
    beside: Mapping[int, Mapping[str, Any]] | None,
    selection: Selection,
) -> float:
    """One seed's figure; NaN where the run has none."""
    if beside is not None:
        return _fairness(beside.get(seed), result) if selection == "last" else math.nan
    accuracy = result["accuracy"]
    scores = accuracy if selection == "last" else accuracy.get(selection) or {}
    value = scores.get(cell.measure)
    return float(value) if isinstance(value, int | float) else math.nan


def _fairness(alone: Mapping[str, Any] | None, together: Mapping[str, Any]) -> float:
    """The correlation, over agents, of self-training and federated accuracy on local tests."""
    if alone is None:
        return math.nan
    first, second = (result["rounds"][-1]["owners"] for result in (alone, together))
    return correlation(list(first.values()), [second[name] for name in first])
