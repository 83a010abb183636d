"""What a terminal shows, what a pipe gets, and what a command says that was meant otherwise."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.table import Table

from secure_fedgraph.arguments import SYNONYMS, nearest
from secure_fedgraph.cli import main
from secure_fedgraph.cli.screen import PlainConsole, Screen

ROOT = Path(__file__).resolve().parents[2]
NAME = "a-name-that-is-longer-than-any-column-of-a-table-will-be"


def wide_table() -> Table:
    table = Table(title="attacks")
    for column in ("one", "two", "three", "four"):
        table.add_column(column)
    table.add_row(NAME, NAME, "0.5", "1")
    return table


def test_no_lines_around_a_table_that_goes_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    Screen({"as_json": False, "quiet": False}).finish({}, [wide_table()], Path("page"))
    printed = capsys.readouterr().out
    assert "attacks" in printed and not re.search("[─-╿\x1b|]", printed)


def test_names_are_whole_in_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    PlainConsole().print(wide_table())
    printed = capsys.readouterr().out
    assert "…" not in printed and max(map(len, printed.splitlines())) <= 80
    body = [line for line in printed.splitlines() if "-" in line or line.startswith(" a")]
    letters = "".join(line[: len(line) // 2].strip() for line in body)
    assert set(NAME) <= set(letters)


def test_a_terminal_shows_something_within_seconds_of_a_long_import(tmp_path: Path) -> None:
    pid, end = pty.fork()
    if pid == 0:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "secure_fedgraph", "run", "--rounds", "1", "--out", "out"]
        os.execvpe(sys.executable, command, environment)
    started, shown = time.monotonic(), b""
    while b"loading" not in shown and time.monotonic() - started < 60:
        if select.select([end], [], [], 0.1)[0]:
            shown += os.read(end, 4096)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert shown.startswith(b"loading torch")


def test_the_bar_shows_the_score(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Screen({"as_json": False, "quiet": False}).bar("rounds", 2) as advance:
        advance({"round": 1, "accuracy": {"global": 0.625}})
    assert "global 0.625" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--eps", "--epsilon"),
        ("--n-clients", "--clients"),
        ("--dataset", "--data"),
        ("--sigma", "--multiplier"),
        ("--polcy", "--policy"),
    ],
)
def test_an_option_that_other_tools_have(option: str, meant: str) -> None:
    done = CliRunner().invoke(main.main, ["run", option, "1", "--out", "out"])
    assert done.exit_code == 2 and f"did you mean {meant}?" in done.stderr
    assert not Path("out").exists() and not Path("runs").exists()


@pytest.mark.parametrize(
    ("assignment", "meant"),
    [("training.lr=1", "training.learning_rate"), ("eps=3", "epsilon"), ("n_clients=3", "clients")],
)
def test_a_key_that_other_tools_have(assignment: str, meant: str) -> None:
    done = CliRunner().invoke(main.main, ["run", "--set", assignment, "--out", "out"])
    assert done.exit_code == 2 and f"did you mean {meant!r}" in done.stderr
    assert not Path("out").exists()


def test_a_word_of_another_tool_stands_for_names_of_ours_alone() -> None:
    assert nearest("lr", ["clip", "batch"]) is None
    assert not {name for name, others in SYNONYMS.items() if name in others}


def test_completion_completes() -> None:
    given = {
        "_SECURE_FEDGRAPH_COMPLETE": "bash_complete",
        "COMP_WORDS": "secure-fedgraph do",
        "COMP_CWORD": "1",
    }
    done = CliRunner().invoke(main.main, [], env=given, prog_name="secure-fedgraph")
    assert "doctor" in done.stdout


def test_head_ends_a_list_without_a_traceback() -> None:
    command = f"{sys.executable} -m secure_fedgraph list attacks | head -n 1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
