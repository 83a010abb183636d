"""One of each kind in a package of somebody else's: lists, runs and audits take it as one of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import other_package
import pytest

START = """
import contextlib, io, json, sys
import secure_fedgraph as sfg
from secure_fedgraph.cli.main import main
from secure_fedgraph.graph.data.datasets import load

def command(*words):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            main(list(words))
        except SystemExit as ended:
            assert not ended.code, (words, ended.code)
    return json.loads(said.getvalue())

found = {}
"""
LISTS = """
found["lists"] = {w: command("list", w, "--json")[w]
                  for w in ("algorithms", "attacks", "policies", "datasets")}
run = sfg.train(sfg.algorithms.ALGORITHMS["means"](), sfg.federate("ring", partition="random", nodes=60),
                policy="wide", rounds=1)
found["digests"] = [run.federation.facts["digest"], load("ring", nodes=60).digest]
print(json.dumps(found))
"""
RUNS = """
found["run"] = command("run", "--algorithm", "means", "--data", "ring", "--set", "dataset.nodes=60",
    "--clients", "3", "--partition", "random", "--policy", "wide", "--set", "protection.limit=32",
    "--rounds", "1", "--json", "--out", "run")
found["audit"] = command("audit", "--algorithm", "means", "--data", "ring", "--clients", "3", "--partition",
    "random", "--policy", "plaintext,wide", "--attack", "x1", "--rounds", "1", "--json", "--out", "audit")
print(json.dumps(found))
"""


def _printed(commands: str, folders: pytest.TempPathFactory) -> dict[str, Any]:
    """What commands print in a process in which the package is installed."""
    folder = other_package.install(folders.mktemp("site"))
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + commands],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folders.mktemp("work"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    printed: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return printed


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is listed, and digests of its data."""
    return _printed(LISTS, tmp_path_factory)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run and an audit."""
    return _printed(RUNS, tmp_path_factory)


@pytest.mark.parametrize(
    ("what", "key", "name"),
    [
        ("algorithms", "name", "means"),
        ("attacks", "id", "x1-class-sizes"),
        ("policies", "name", "wide"),
        ("datasets", "name", "ring"),
    ],
)
def test_lists_say_whose_it_is(listed: dict[str, Any], what: str, key: str, name: str) -> None:
    rows = listed["lists"][what]
    assert rows[-1][key] == name and rows[-1]["package"] == "somebody"
    assert {row["package"] for row in rows[:-1]} == {"secure-fedgraph"}


@pytest.mark.slow
def test_clients_train_it_under_its_policy_on_its_data(ran: dict[str, Any]) -> None:
    run = ran["run"]
    assert (run["config"]["algorithm"], run["config"]["policy"]) == ("means", "wide")
    assert run["data"]["source"] == "package somebody" and run["data"]["nodes"] == 60
    (row,) = [one for one in run["channels"] if one["name"] == "statistics"]
    assert row["domain"] == "masked"
    assert run["accuracy"]["global"] > 0.9


def test_its_data_are_nobody_elses_to_recognise(listed: dict[str, Any]) -> None:
    keyed, content = listed["digests"]
    assert keyed != content


@pytest.mark.slow
def test_its_attack_is_scored_by_its_own_judge(ran: dict[str, Any]) -> None:
    audit = ran["audit"]
    cells = {(c["policy"], c["settings"]["aim"]): c for c in audit["cells"]}
    read = cells["plaintext", "each owner"]
    assert (read["metric"], read["score"], read["leaks"]) == ("sizes right", 1.0, True)
    assert cells["wide", "each owner"]["outcome"] == "blind"
    assert cells["wide", "what the defence leaves"]["score"] == 1.0
    assert (read["title"], read["subject"]) == (
        "an owner's class sizes, as it sends them",
        "sizes of classes",
    )
