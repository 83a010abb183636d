"""Marks of cells, means and errors over seeds, and what is not counted."""

from __future__ import annotations

import math
from typing import Any

import pytest

from secure_fedgraph.experiment.reproduce.outcome import Score, counts, outcomes, share_reached
from secure_fedgraph.experiment.reproduce.tables import Case, Cell, PaperTable

CASE, ALONE = Case("one", {"algorithm": "fedavg"}), Case("alone", {"algorithm": "local"})


def table(*cells: Cell, selection: Any = "last") -> PaperTable:
    return PaperTable("t-1", "a table", "a paper", 2, selection, cells)


def result(value: float, best: float | None = None, owners: dict[str, float] | None = None) -> dict[str, Any]:
    accuracy: dict[str, Any] = {"global": value, "mae": value}
    if best is not None:
        accuracy["best_on_test"] = {"global": best}
    return {"accuracy": accuracy, "seconds": 3.0, "rounds": [{"owners": owners or {}}]}


@pytest.mark.parametrize(
    ("measure", "paper", "ours", "mark"),
    [
        ("global", 0.8, 0.82, "reached"),
        ("global", 0.8, 0.76, "missed"),
        ("global", 0.8, 0.84, "better"),
        ("mae", 0.8, 0.76, "better"),
        ("mae", 0.8, 0.84, "missed"),
        ("global", None, 0.84, "beside"),
    ],
)
def test_marks(measure: str, paper: float | None, ours: float, mark: str) -> None:
    asked = table(Cell("row", "column", paper, 0.03, measure, CASE))
    (found,) = outcomes(asked, {"one": {0: result(ours)}}, {})
    assert found.mark == mark


def test_the_papers_own_selection_decides_and_all_are_kept() -> None:
    asked = table(Cell("row", "column", 0.9, 0.03, "global", CASE), selection="best_on_test")
    (found,) = outcomes(asked, {"one": {0: result(0.7, best=0.9)}}, {})
    assert found.mark == "reached"
    assert found.plain()["ours"]["last"]["mean"] == 0.7


def test_a_mean_over_seeds_and_its_standard_error() -> None:
    score = Score.of([0.7, 0.8, math.nan])
    assert score is not None
    assert score.mean == pytest.approx(0.75)
    assert score.standard_error == pytest.approx(0.05)
    alone = Score.of([0.7])
    assert alone is not None
    assert alone.plain()["standard_error"] is None
    assert Score.of([]) is None


def test_what_was_not_run_is_not_reached() -> None:
    asked = table(
        Cell("a", "column", 0.8, 0.1, "global", CASE),
        Cell("b", "column", 0.8, 0.1, "global", Case("two", {})),
        Cell("c", "column", 0.8, 0.1, "global", Case("three", {})),
        Cell("d", "column", 0.8, 0.1, why_not="no data"),
        Cell("e", "column", None, 0.1, "global", CASE),
        Cell("f", "column", None, 0.1, "global", Case("four", {})),  # nothing that it could reach
    )
    found = outcomes(asked, {"one": {0: result(0.8)}}, {"two": "it broke"})
    assert [one.mark for one in found] == ["reached", "failed", "to run", "not possible", "beside", "to run"]
    assert counts(found)["failed"] == 1
    assert share_reached(found) == pytest.approx(1 / 3)
    assert math.isnan(share_reached(found[3:]))


def test_fairness_is_a_correlation_with_the_agents_by_themselves() -> None:
    asked = table(Cell("row", "column", 1.0, 0.1, "fairness", CASE, ALONE))
    alone = {"a": 0.1, "b": 0.5, "c": 0.7}
    same = {
        "alone": {0: result(0.5, owners=alone)},
        "one": {0: result(0.5, owners=dict(reversed(alone.items())))},
    }
    (found,) = outcomes(asked, same, {})
    assert found.mark == "reached"
    (unknown,) = outcomes(asked, {"one": same["one"]}, {})
    assert unknown.mark == "to run"
