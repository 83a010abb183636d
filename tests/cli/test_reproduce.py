"""The command ``reproduce``: runs are made once, failures are cells, and the file has what made it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_line import held
from in_this_process import at_once

from secure_fedgraph.cli.main import main
from secure_fedgraph.experiment import reproduce, results
from secure_fedgraph.experiment.reproduce import Case, Cell, PaperTable

SMALL = {"dataset": {"nodes": 60, "features": 16}, "data": "synthetic-citation", "rounds": 2}
NETWORK = {"hidden": [8], "fanout": [2]}
FINE = Case("fine", {**SMALL, "algorithm": "fedavg", "training": NETWORK}, 0.1)
LOCAL = Case("local", {**SMALL, "algorithm": "local", "training": NETWORK}, 0.1)
BROKEN = Case("broken", {**SMALL, "algorithm": "fedavg", "training": {"hiden": [8]}}, 0.1)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> str:
    cells = (
        Cell("fine", "small", 0.5, 0.5, "global", FINE),
        Cell("local", "small", None, 0.5, "local", LOCAL),
        Cell("broken", "small", 0.5, 0.1, "global", BROKEN),
        Cell("none", "large", 0.5, 0.1, why_not="no such data"),
    )
    made = PaperTable("fedego-2", "a small one", "a paper", 2, "last", cells)
    monkeypatch.setitem(reproduce.TABLES, "fedego-2", made)
    return made.name


def called(*words: str) -> Result:
    return CliRunner().invoke(main, ["reproduce", *words, "--workers", "1", "--json"])


def test_a_table_is_made_once_and_says_what_broke(table: str, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    made = called(table, "--seeds", "1", *out)
    assert made.exit_code == 1
    kept = held(tmp_path / "fedego-2.json")
    assert kept["marks"] == {"reached": 1, "beside": 1, "failed": 1, "not possible": 1}
    assert kept["share_reached"] == 0.5
    assert len(kept["code"]) == 1
    assert kept["versions"]["torch"]
    broken = next(cell for cell in kept["cells"] if cell["mark"] == "failed")
    assert "hiden" in broken["reason"]
    first = (tmp_path / "runs" / "fine" / "seed-0" / "result.json").stat().st_mtime_ns
    again = called(table, "--only", "fine", "--seeds", "2", *out)
    assert again.exit_code == 0, again.output
    assert (tmp_path / "runs" / "fine" / "seed-0" / "result.json").stat().st_mtime_ns == first
    part = held(tmp_path / "fedego-2-fine.json")
    assert part["part"] is True
    assert len(part["cells"][0]["ours"]["last"]["each"]) == 2


def test_what_is_installed_is_not_read_again_for_every_run(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    version = results.metadata.version
    monkeypatch.setattr(results.metadata, "version", lambda name: read.append(name) or version(name))
    looked = called(table, "--finished", "--seeds", "40", "--out", str(tmp_path))
    assert looked.exit_code == 0, looked.output
    assert len(read) <= len(results.PACKAGES)


def test_what_is_finished_is_printed_and_nothing_runs(table: str, tmp_path: Path) -> None:
    looked = called(table, "--finished", "--out", str(tmp_path))
    assert looked.exit_code == 0, looked.output
    assert json.loads(looked.output)["marks"]["to run"] == 3
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("fedego-99",),
        ("fedego-2", "--only", "nobody"),
        ("fedego-2", "--seeds", "0"),
        ("fedego-2", "--seeds", "1001", "--finished"),
    ],
)
def test_words_that_are_wrong(words: tuple[str, ...], tmp_path: Path) -> None:
    refused = called(*words, "--out", str(tmp_path))
    assert refused.exit_code == 2
    assert not (tmp_path / "runs").exists()


def test_a_file_in_the_place_of_the_folder_is_refused_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "tables"
    file.write_text("mine")
    for place in (file, file / "below"):
        assert called("fedego-2", "--out", str(place)).exit_code == 2
    assert file.read_text() == "mine"


def test_the_first_line_counts_what_is_left(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    said = CliRunner().invoke(main, ["reproduce", table, "--seeds", "1", "--out", str(tmp_path)]).output
    assert "3 of 3 runs are left" in " ".join(said.split())
