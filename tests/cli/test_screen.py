"""Names, paths and other people's sentences are printed as they are, and steer no terminal."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from secure_fedgraph.cli.screen import Screen, plain_warnings
from secure_fedgraph.protocol.courier import LeftOutWarning

ODD = "a[/b][red]:smile:"


def screen() -> Screen:
    return Screen({"as_json": False, "quiet": False})


def test_a_result_is_printed_whatever_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=f"{ODD} on cora")
    table.add_column(f"column {ODD}")
    table.add_row(f"cell {ODD}")
    screen().finish({}, [table, Text(f"red \x1b[31m{ODD}\x07")], Path(f"o/{ODD}"))
    printed = capsys.readouterr().out
    assert printed.count(ODD) == 5 and f"Report: o/{ODD}" in printed
    assert "\x1b" not in printed and "\x07" not in printed


def test_notes_and_progress_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = screen()
    shown.note(f"note {ODD}")
    with shown.bar(f"bar {ODD}", 1) as advance:
        advance(f"next {ODD}\x1b]0;title\x07")
    shown.lead(f"lead {ODD}\x1b[2J")
    printed, steps = capsys.readouterr()
    assert f"bar {ODD}" in steps and "note" in steps and "\x1b]" not in steps
    assert printed == f"lead {ODD}?[2J\n"


def test_who_is_left_out_is_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_warnings():
        for _ in range(2):
            warnings.warn("owner-1 is left out", LeftOutWarning, stacklevel=1)
    printed, said = capsys.readouterr()
    assert printed == "" and said == "secure-fedgraph: warning: owner-1 is left out\n"
