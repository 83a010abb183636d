"""Owners that a run went on without are named where a person reads: on the terminal, and on the page."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from result_parts import result
from rich.console import Console
from test_report_page import build, run_json, text_of

from secure_fedgraph.cli.tables import run_tables
from secure_fedgraph.report.left_out import MOST_OWNERS, left_out


def note(client: str, round: int, why: str = "its process ended", **more: Any) -> dict[str, Any]:
    return {"round": round, "channel": "update", "step": "answer", "client": client, "reason": why, **more}


def without(*notes: dict[str, Any]) -> dict[str, Any]:
    return run_json(left_out=list(notes))


def test_nobody_is_named_where_nobody_is_missing() -> None:
    assert left_out(result(run_json())) == []


def test_each_owner_has_a_line() -> None:
    value = without(note("owner-1", 5), note("owner-2", 3, "x"), note("owner-1", 6, "y"), note("owner-1", 6))
    assert left_out(result(value)) == [
        "owner-1 was left out in 2 rounds, first in round 5: its process ended.",
        "owner-2 was left out in round 3: x.",
    ]


def test_seeds_are_told_apart() -> None:
    value = without(note("owner-1", 5, seed=0), note("owner-1", 6, seed=1), note("owner-1", 7, seed=1))
    assert left_out(result(value)) == [
        "owner-1 was left out in round 5 of seed 0: its process ended.",
        "owner-1 was left out in 2 rounds of seed 1, first in round 6: its process ended.",
    ]


def test_many_are_counted() -> None:
    told = left_out(result(without(*(note(f"owner-{i}", 1) for i in range(MOST_OWNERS + 3)))))
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
