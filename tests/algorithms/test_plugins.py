"""``module:Class``: which module is imported, and which never."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.audits.grid import folders
from secure_fedgraph.errors import BadInput
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import begin, begun

RAN = "raise AssertionError('it ran')"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})


def resumed(folder: Path, name: str) -> None:
    begin(folder, Experiment().model_copy(update={"algorithm": name}), [0], "run")
    begun(folder)


def audited(folder: Path, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        result: dict[str, Any] = {"config": {"algorithm": name}}
        patch.setattr(folders, "read_json", lambda *_: result)
        folders.finished(folder)


@pytest.mark.parametrize("read", [resumed, audited])
@pytest.mark.parametrize(
    ("code", "at", "name"),
    [
        ("evil.py", "results", "evil:X"),  # whoever stands in the folder
        ("evil.py", ".", "results.evil:X"),  # whoever stands beside it
        ("pack/evil.py", "results", "pack.evil:X"),
        ("pack/__init__.py", "results/pack", "evil:X"),
    ],
)
def test_no_code_is_run_out_of_a_folder_of_results(
    read: Callable[[Path, str], None], code: str, at: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("results").absolute()
    (folder / code).parent.mkdir(parents=True)
    (folder / code).write_text(RAN)
    (folder / code).with_name("evil.py").write_text(RAN)
    monkeypatch.chdir(at)
    with pytest.raises(BadInput, match="no code is run out of a folder"):
        read(folder, name)


def test_a_module_beside_the_folder_of_results_is_its_users(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    resumed(Path("results"), "mine:X")
    assert "mine" in sys.modules


def test_a_module_that_ends_the_process_is_named(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("raise SystemExit(0)")
    with pytest.raises(BadInput, match=r"'ends:X'.*SystemExit"):
        algorithm_named("ends:X")
