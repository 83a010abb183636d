"""Owners that a run went on without are named where a person reads: on the terminal, and on the page."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from result_parts import result
from rich.console import Console
from test_report_page import build, run_json, text_of

from secure_fedgraph.cli.tables import compare_tables, run_tables
from secure_fedgraph.experiment.compare import points
from secure_fedgraph.experiment.compare.summary import row_of
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.schema import CompareResult
from secure_fedgraph.report.left_out import MOST_OWNERS, left_out
from secure_fedgraph.report.page import write_report


def note(client: str, round: int, why: str = "its process ended", **more: Any) -> dict[str, Any]:
    return {"round": round, "channel": "update", "step": "answer", "client": client, "reason": why, **more}


def without(*notes: dict[str, Any]) -> dict[str, Any]:
    return run_json(left_out=list(notes))


ENDED = "its process ended"


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        ([], []),
        (
            [note("owner-1", 5), note("owner-2", 3, "x"), note("owner-1", 6, "y"), note("owner-1", 6)],
            [f"owner-1 was left out in 2 rounds, first in round 5: {ENDED}.",
             "owner-2 was left out in round 3: x."],
        ),
        (
            [note("owner-1", 5, seed=0), note("owner-1", 6, seed=1), note("owner-1", 7, seed=1)],
            [f"owner-1 was left out in round 5 of seed 0: {ENDED}.",
             f"owner-1 was left out in 2 rounds of seed 1, first in round 6: {ENDED}."],
        ),
    ],
)  # fmt: skip
def test_each_owner_has_a_line(notes: list[dict[str, Any]], told: list[str]) -> None:
    assert left_out(result(without(*notes)).left_out) == told


def test_many_are_counted() -> None:
    told = left_out(result(without(*(note(f"owner-{i}", 1) for i in range(MOST_OWNERS + 3)))).left_out)
    assert len(told) == MOST_OWNERS + 1 and told[-1].startswith("3 more ")


@pytest.mark.parametrize("why", ["it ended", "<b>it</b> \x1b[31m ended"])
def test_terminal_and_page_say_it(tmp_path: Path, why: str) -> None:
    value = without(note("owner-1", 5, why), note("owner-1", 6, why))
    console = Console(width=200, record=True, file=StringIO())
    for table in run_tables(result(value)):
        console.print(table)
    page = build(tmp_path, value)
    for told in (console.export_text(), text_of(page)):
        assert "owner-1 was left out in 2 rounds, first in round 5" in " ".join(told.split())
    assert "<b>it</b>" not in page and "\x1b" not in page


def test_a_comparison_names_those_of_its_runs(tmp_path: Path) -> None:
    whole = {"accuracy": {"global": 0.5}, "privacy": {}, "metric": "accuracy"}
    whole |= {"bytes": {"up": 1}, "seconds": 1.0}
    runs = {0: whole, 1: {**whole, "left_out": [note("owner-1", 5)]}}
    point = points(Experiment(data="cora"), ["fedavg"], ["masked"], [])[0]
    row = row_of(point, runs, {})
    assert "left_out" not in row_of(point, {0: whole}, {})
    config = {"data": "cora", "clients": 3, "unit": "client"}
    value = {"schema": "secure-fedgraph/compare/1", "config": config, "seeds": [0, 1], "points": [row]}
    (tmp_path / "compare.json").write_text(json.dumps(value))
    console = Console(width=200, record=True, file=StringIO())
    for table in compare_tables(CompareResult.model_validate(value)):
        console.print(table)
    for told in (console.export_text(), text_of(write_report(tmp_path).read_text())):
        line = f"{row['name']}: owner-1 was left out in round 5 of seed 1: its process ended."
        assert line in " ".join(told.split())
