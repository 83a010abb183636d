"""``doctor``: a verdict a line, light, and a status that says whether runs would fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from secure_fedgraph.cli import main
from secure_fedgraph.cli.doctor import data, machine, packages
from secure_fedgraph.cli.doctor.finding import Finding, Verdict, summary

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main.main, ["doctor", *arguments])


def by_name(found: object) -> dict[str, Finding]:
    return {one.name: one for one in found}  # type: ignore[attr-defined]


def test_it_is_light_and_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from secure_fedgraph.cli.main import main\n"
        "try: main(['doctor', '--json'])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    printed, ended = done.stdout.splitlines()
    assert ended == "0 False False"
    assert json.loads(printed)["verdict"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_json_and_lines_say_the_same() -> None:
    found = json.loads(call("--json").stdout)
    assert found["schema"] == "secure-fedgraph/doctor/1"
    assert {row["verdict"] for row in found["checks"]} <= set(Verdict)
    printed = call().stdout
    for row in found["checks"]:
        assert row["name"] in printed
    assert all(len(line) <= 80 or len(line.split()) == 1 or "/" in line for line in printed.splitlines())
    assert "\x1b" not in printed


def test_it_looks_at_all_that_the_package_needs_and_at_each_extra_of_a_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"test", "fuzz", "dev", "docs"}
    assert set(packages.USES) == extras
    names = by_name(packages.findings())
    assert "torch" in names and f"extra {min(extras)}" in names


def test_it_looks_at_all_data_sets() -> None:
    from secure_fedgraph.graph.data.datasets import DATASETS, RAW

    assert {*RAW, *data.GENERATED} == set(DATASETS.own)


def test_a_data_set_is_there_when_its_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FEDGRAPH_DATA", str(tmp_path))
    assert by_name(data.findings())["dblp"].verdict == Verdict.NOTE
    (tmp_path / "citation_full/dblp/raw").mkdir(parents=True)
    (tmp_path / "citation_full/dblp/raw/dblp.npz").touch()
    assert by_name(data.findings())["dblp"].verdict == Verdict.OK


def test_a_data_root_that_is_none_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FEDGRAPH_DATA", str(tmp_path / "gone"))
    done = call("--json")
    assert done.exit_code == 1 and "SECURE_FEDGRAPH_DATA" in done.stderr
    assert json.loads(done.stdout)["verdict"] == "problem"


def test_a_package_that_is_missing_or_too_old_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["nobody-has-this>=1", "click>=999", 'no-such-package; extra == "data"']
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    found = by_name(packages.findings())
    assert found["nobody-has-this"].verdict == Verdict.PROBLEM
    assert found["click"].verdict == Verdict.PROBLEM and "999" in found["click"].there
    assert found["extra data"].verdict == Verdict.NOTE and "[data]" in found["extra data"].mend
    assert packages.missing("data") == ["no-such-package"]


def test_a_folder_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert by_name(machine.findings())["cache"].verdict == Verdict.NOTE
    (tmp_path / "runs").touch()  # a file is in the place of the folder
    runs = by_name(machine.findings())["runs"]
    assert runs.verdict == Verdict.PROBLEM and "--out" in runs.mend


def test_memory_is_the_groups_where_that_has_less(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  4096 kB\nMemAvailable:  2048 kB\n")
    assert machine.free_memory(meminfo, tmp_path) == (2048 * 1024, 4096 * 1024)
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "memory.current").write_text("48576\n")
    assert machine.free_memory(meminfo, tmp_path) == (1_000_000, 1_048_576)
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.free_memory(meminfo, tmp_path) == (2048 * 1024, 4096 * 1024)


@pytest.mark.parametrize(("line", "built_for"), [("'13.0'", "13.0"), ("None", None)])
def test_what_torch_is_built_for_is_read_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, built_for: str | None
) -> None:
    (tmp_path / "version.py").write_text(f"debug = False\ncuda: Optional[str] = {line}\nhip = '6.0'\n")
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: found if name == "torch" else None)
    assert machine.cuda_of_torch() == built_for


def test_one_problem_decides_the_verdict() -> None:
    fine = Finding("a", "b", Verdict.NOTE, "c")
    assert summary([fine])["verdict"] == "ok"
    assert summary([fine, Finding("a", "d", Verdict.PROBLEM, "e")])["verdict"] == "problem"


def test_an_older_python_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PYTHON", (99, 0))
    first = next(packages.findings())
    assert (first.name, first.verdict) == ("Python", Verdict.PROBLEM)
