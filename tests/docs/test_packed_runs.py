"""Runs of the papers' tables that are packed are those that ``reproduce`` goes on from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from in_this_process import at_once

from secure_fedgraph.cli.main import main
from secure_fedgraph.experiment import reproduce
from secure_fedgraph.experiment.reproduce import Case, Cell, PaperTable

SMALL = {"dataset": {"nodes": 60, "features": 16}, "data": "synthetic-citation", "rounds": 2}
FINE = Case("fine", {**SMALL, "algorithm": "fedavg", "training": {"hidden": [8], "fanout": [2]}}, 0.1)


def test_an_unpacked_run_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import reproduced

    monkeypatch.setattr(reproduced, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(reproduced, "RUNS", tmp_path / "kept" / "runs.jsonl")
    cells = (Cell("fine", "small", 0.5, 0.5, "global", FINE),)
    made = PaperTable("fedego-2", "a small one", "a paper", 1, "last", cells)
    monkeypatch.setitem(reproduce.TABLES, made.name, made)

    def marks(out: Path, *words: str) -> dict[str, int]:
        done = CliRunner().invoke(main, ["reproduce", made.name, *words, "--json", "--out", str(out)])
        assert done.exit_code == 0, done.output
        counted: dict[str, int] = json.loads(done.output)["marks"]
        return counted

    first, other = tmp_path / "first", tmp_path / "other"
    assert marks(first, "--workers", "1") == {"reached": 1}
    reproduced.pack(first)
    reproduced.unpack(other)
    assert marks(other, "--finished") == {"reached": 1}
    assert sys.modules.pop("reproduced") is reproduced
