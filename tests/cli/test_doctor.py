"""``doctor``: a verdict a line, light, and a status that says whether runs would fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from secure_fedgraph.cli import doctoring, main
from secure_fedgraph.cli.doctoring import NOTE, OK, PROBLEM, Finding

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main.main, ["doctor", *arguments])


def by_name(found: Iterable[Finding]) -> dict[str, Finding]:
    return {one.name: one for one in found}


def test_it_is_light_and_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from secure_fedgraph.cli.main import main\n"
        "try: main(['doctor', '--json'])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    printed, ended = done.stdout.splitlines()
    assert ended == "0 False"
    assert json.loads(printed)["verdict"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_json_and_lines_say_the_same() -> None:
    found = json.loads(call("--json").stdout)
    assert found["schema"] == "secure-fedgraph/doctor/1"
    lines = call().stdout.splitlines()
    assert [line.split()[0] for line in lines] == [row["verdict"] for row in found["checks"]]
    assert all(row["name"] in line for row, line in zip(found["checks"], lines, strict=True))


def test_it_looks_at_all_that_the_package_needs_and_at_each_extra_of_a_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"test", "fuzz", "dev", "docs"}
    assert set(doctoring.USES) == extras
    assert "torch" in by_name(doctoring.of_packages())


def test_a_data_set_is_there_when_its_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FEDGRAPH_DATA", str(tmp_path))
    assert by_name(doctoring.of_data())["dblp"].verdict == NOTE
    (tmp_path / "citation_full/dblp/raw").mkdir(parents=True)
    (tmp_path / "citation_full/dblp/raw/dblp.npz").touch()
    assert by_name(doctoring.of_data())["dblp"].verdict == OK


def test_a_data_root_that_is_none_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FEDGRAPH_DATA", str(tmp_path / "gone"))
    done = call("--json")
    assert done.exit_code == 1 and "SECURE_FEDGRAPH_DATA" in done.stderr
    assert json.loads(done.stdout)["verdict"] == "problem"


def test_a_package_that_is_missing_or_too_old_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["nobody-has-this>=1", "click>=999", 'no-such-package; extra == "data"']
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    found = by_name(doctoring.of_packages())
    assert found["nobody-has-this"].verdict == PROBLEM
    assert found["click"].verdict == PROBLEM and "999" in found["click"].there
    assert found["extra data"].verdict == NOTE and "[data]" in found["extra data"].mend


def test_a_folder_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").touch()  # a file is in the place of the folder
    runs = by_name(doctoring.of_machine())["runs"]
    assert runs.verdict == PROBLEM and "--out" in runs.mend
