"""``module:Class``: which module is imported, and which never."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.audits.grid import folders
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import begin, begun
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.run import Accuracy

RAN = "raise AssertionError('it ran')"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})


def resumed(folder: Path, name: str, typed: str | None) -> None:
    begin(folder, Experiment().model_copy(update={"algorithm": name}), [0], "run")
    begun(folder, algorithm=typed)


def audited(folder: Path, name: str, typed: str | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        result: dict[str, Any] = {"config": {"algorithm": name}}
        patch.setattr(folders, "read_json", lambda *_: result)
        folders.read_folder(folder, typed)


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
    read: Callable[[Path, str, str | None], None],
    code: str,
    at: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path("results").absolute()
    (folder / code).parent.mkdir(parents=True)
    (folder / code).write_text(RAN)
    (folder / code).with_name("evil.py").write_text(RAN)
    monkeypatch.chdir(at)
    with pytest.raises(BadInput, match="no code is run out of a folder"):
        read(folder, name, name)


@pytest.mark.parametrize("read", [resumed, audited])
@pytest.mark.parametrize("typed", [None, "mine:Y", "fedsage"])
def test_no_code_is_run_because_a_file_names_it(
    read: Callable[[Path, str, str | None], None], typed: str | None, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(RAN)
    with pytest.raises(BadInput, match="--algorithm mine:X" if typed is None else "is of 'mine:X': drop it"):
        read(Path("results"), "mine:X", typed)
    assert "mine" not in sys.modules


def test_a_module_that_the_user_names_beside_the_folder_is_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    resumed(Path("results"), "mine:X", "mine:X")
    assert "mine" in sys.modules


def test_the_command_audit_takes_the_name_of_an_own_algorithm_of_a_finished_run(tmp_path: Path) -> None:
    Path("run").mkdir()
    Path("run/result.json").write_text(
        RunResult(
            schema="secure-fedgraph/run/1", config={"algorithm": "mine:X"}, accuracy=Accuracy()
        ).model_dump_json(by_alias=True)
    )
    (tmp_path / "mine.py").touch()
    for typed, words in (
        ([], "add --algorithm mine:X"),
        (["--algorithm", "fedsage"], "--algorithm cannot change the finished run"),
        (["--algorithm", "mine:X"], "mine:X' cannot be imported"),  # the module has no X
    ):
        assert ("mine" in sys.modules) is False
        refused = CliRunner().invoke(main, ["audit", "run", *typed])
        assert refused.exit_code == 2 and words in refused.stderr, refused.output
    assert "mine" in sys.modules


def test_a_module_that_ends_the_process_is_named(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("raise SystemExit(0)")
    with pytest.raises(BadInput, match=r"'ends:X'.*SystemExit"):
        algorithm_named("ends:X")


OWN = """
from secure_fedgraph.algorithm import Algorithm
from beside import NAME

class Own(Algorithm):
    name = NAME
    def round(self, round, state): ...
    def predict(self, params, graph, schema): ...
"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, as a clone's is, with modules of the same names."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for module in ("beside", "tried_attacks"):
        (folder / f"{module}.py").write_text("NAME = 'of the clone'")
    monkeypatch.syspath_prepend(folder)
    return folder


def test_the_users_own_module_comes_before_the_clones_and_hides_no_other(tmp_path: Path, clone: Path) -> None:
    for module in ("tried_attacks", "beside", "sched"):
        (tmp_path / f"{module}.py").write_text(OWN)
    sys.modules.pop("sched", None)
    assert algorithm_named("tried_attacks:Own").name == "of the clone"  # what it imports is found as ever
    with pytest.raises(BadInput, match="sched"):  # the standard library's
        algorithm_named("sched:Own")
    (tmp_path / "breaks.py").write_text("1 / 0")
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        algorithm_named("breaks:Own")
    assert "breaks" not in sys.modules
