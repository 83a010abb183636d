"""The command ``bench``: a small suite is run, signed, made again, and shown beside a stranger's file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from class_means import MEANS
from command_line import call, held
from in_this_process import at_once

from secure_fedgraph.experiment.bench import running, suite
from secure_fedgraph.storage import manifest

SMALL = {"data": "synthetic-citation", "dataset": {"nodes": 60, "features": 16}, "clients": 3}
HALVES = {"louvain": {"partition": "louvain"}, "random": {"partition": "random"}}
LINKS = {"vertical": {"partition": "vertical"}}
SHARES = ("a7-class-shares", "d1-index-lists")
TASKS = {
    "nodes": suite.Task("Nodes", "node", ("fedridge", "local"), SHARES, 1, 1, SMALL, HALVES),
    "columns": suite.Task("Columns", "node", ("fedridge",), (), 1, 1, SMALL, LINKS),
    "banks": suite.Task("Banks", "node", ("fedridge",), (), 1, 1, {"tables": "german"}, {"equal": {}}),
}  # fmt: skip
SIZES = '''
from secure_fedgraph.attacks import Attack, Blind

class Sizes(Attack):
    """How many nodes an owner trains on, badly guessed."""
    id, family, summary, channel = "own-sizes", "weights", "sizes of owners", "statistics"

    def run(self, view, knowledge):
        raise Blind("sums tell no owner's size")
'''
TINY = suite.Suite((4.0,), 2, (4.0,), TASKS)


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        at_once(patch)
        patch.setattr(suite, "SUITE", TINY)
        patch.delenv("SECURE_FEDGRAPH_DATA", raising=False)
        yield


@pytest.fixture(scope="module")
def original(small: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "mine"
    done = call("bench", "--quick", "--out", out, "--quiet")
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture
def made(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "mine")) / "bench.json"


def rows(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["task"], row["name"]): row for row in held(file)["points"]}


def signed(file: Path, change: Any) -> Path:
    """A file that says something else, under a signature that is right."""
    value = held(file)
    change(value)
    file.write_text(json.dumps(value))
    manifest.write(file.parent)
    return file


def test_every_row_says_what_it_is_worth_and_what_was_left_out_says_why(made: Path) -> None:
    value, found = held(made), rows(made)
    assert value["schema"] == "secure-fedgraph/bench/1" and value["suite"] == TINY.digest
    assert set(found) == {
        ("nodes", "fedridge-plaintext"),
        ("nodes", "fedridge-masked-4"),
        ("columns", "fedridge"),
    }
    private = found["nodes", "fedridge-masked-4"]
    assert private["spent"] <= 4 and private["readers"]["node"]["server"] <= 4 and private["cpu"] >= 0
    assert "d1-index-lists" not in private["leak"] and "a7-class-shares" in private["leak"]
    assert found["nodes", "fedridge-plaintext"]["leaks"]["a7-class-shares"]["score"] > 0
    assert "runs on louvain" in found["columns", "fedridge"]["reason"]
    left = {one["task"]: one.get("reason", "") for one in value["tasks"]}
    assert "$SECURE_FEDGRAPH_DATA/tables/german" in left.pop("banks") and not any(left.values())
    assert all(one["digest"] for one in value["tasks"] if not one.get("reason"))
    shown = call("bench", "--quick", "--out", made.parent).output
    assert "node: ∞" in shown and "node: 4" in shown
    page = (made.parent / "report.html").read_text()
    assert "fedridge refused: " in page and "german.csv" in page and "<svg" in page


def test_finished_runs_are_kept_and_only_what_is_asked_for_runs(made: Path) -> None:
    kept = {path: path.stat().st_mtime_ns for path in made.parent.rglob("result.json")}
    asked = ("--quick", "--task", "nodes", "--algorithm", "fedridge,local", "--out", made.parent, "--json")
    again = call("bench", *asked)
    assert again.exit_code == 0, again.output
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    names = {row["name"] for row in json.loads(again.stdout)["points"]}
    assert names == {"fedridge-plaintext", "fedridge-masked-4", "local-plaintext", "local-masked-4"}


def test_an_algorithm_of_somebody_elses_is_one_file_whose_code_is_named_again(
    small: None, tmp_path: Path
) -> None:
    (tmp_path / "their_means.py").write_text(SIZES + MEANS)
    mine, attack = ("--algorithm", "their_means:Means"), ("--attack", "their_means:Sizes")
    done = call("bench", "--quick", "--task", "nodes", *mine, *attack, "--out", "theirs", "--quiet")
    assert done.exit_code == 0, done.output
    points = held("theirs/bench.json")["points"]
    assert [row["name"] for row in points] == [
        "their_means.Means-plaintext",
        "their_means.Means-distributed_dp-4",
    ]
    assert [row["leak"] for row in points] == [{"own-sizes": "blind"}] * 2
    refused = call("bench", "verify", "theirs")
    assert refused.exit_code == 2 and "add --algorithm" in refused.stderr
    assert call("bench", "verify", "theirs", *mine).exit_code == 0


def test_a_tenth_is_made_again_and_what_differs_is_named(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SHARE", 1)
    as_said = call("bench", "verify", made, "--seed", "3", "--json")
    assert as_said.exit_code == 0, as_said.output
    assert [one["as_said"] for one in json.loads(as_said.stdout)["runs"]] == [True, True]

    def better(value: dict[str, Any]) -> None:
        row = value["points"][0]
        row["accuracy"]["global"] += 0.001
        row["each"][0]["accuracy"]["global"] += 0.001

    caught = call("bench", "verify", signed(made, better))
    assert caught.exit_code == 4, caught.output
    assert "1 of 2 runs" in caught.stderr and "fedridge-plaintext, seed 0" in caught.stderr


LIES = [{"spent": 1.0}, {"readers": {"client": {"server": 0.01}}}, {"alone": {"accuracy": 0.01}}]


@pytest.mark.parametrize("changed", LIES)
def test_a_figure_that_did_not_come_out_is_named(
    made: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    monkeypatch.setattr(running, "SHARE", 1)
    caught = call("bench", "verify", signed(made, lambda value: value["points"][1].update(changed)))
    assert caught.exit_code == 4 and "fedridge-masked-4" in caught.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value.update(suite="another"), "suite"),
        (lambda value: value["points"][0].update(task="../../etc"), "no run of the suite"),
        (lambda value: value["points"][0]["each"][0].update(seed=7), "no run of the suite"),
        (lambda value: value["points"][1].update(algorithm="os:system"), "add --algorithm"),
        (lambda value: value["points"][0].update(name="fedridge-local_dp-4"), "no run of the suite"),
        (lambda value: value["points"][0].update(budget=1.0), "no run of the suite"),
        (lambda value: value["points"][1].update(unit="edge"), "no run of the suite"),
        (lambda value: value["points"][0].update(bytes="many"), "points.0.bytes"),
        (lambda value: value["points"][0]["accuracy"].update({"global": 0.99}), "no mean of its seeds"),
        (lambda value: value.update(points=[]), "nothing to run again"),
    ],
)
def test_a_strangers_file_opens_and_runs_nothing_of_its_own(
    made: Path, monkeypatch: pytest.MonkeyPatch, change: Any, said: str
) -> None:
    monkeypatch.setattr(running, "SHARE", 1)
    refused = call("bench", "verify", signed(made, change))
    assert refused.exit_code == 2, refused.output
    assert said in refused.stderr


@pytest.mark.parametrize("command", ["verify", "page"])
def test_a_changed_byte_is_refused_by_name(made: Path, command: str) -> None:
    made.write_text(made.read_text().replace("fedridge", "fedridgf", 1))
    refused = call("bench", command, made)
    assert refused.exit_code == 2 and str(made) in refused.stderr.replace("\n", "")


def test_a_board_takes_no_mean_of_other_seeds_and_overwrites_no_submission(made: Path) -> None:
    assert call("bench", "page", made, "--out", made).exit_code == 2
    assert call("bench", "page", made, "--out", made.parent).exit_code == 2 and held(made)
    better = signed(made, lambda value: value["points"][0]["accuracy"].update({"global": 0.99}))
    refused = call("bench", "page", better, "--out", made.parent / "board.html")
    assert refused.exit_code == 2 and "no mean of its seeds" in refused.stderr


def test_without_any_data_it_fails(small: None, tmp_path: Path) -> None:
    assert call("bench", "--quick", "--task", "banks", "--out", tmp_path / "none").exit_code == 2


def test_the_board_names_files_and_escapes_what_is_in_them(made: Path) -> None:
    theirs = made.parent.parent / "theirs"
    shutil.copytree(made.parent, theirs)

    def hostile(value: dict[str, Any]) -> None:
        value["points"][0]["algorithm"] = "<script>alert(1)</script>"
        value["command"] = '"><img src=x onerror=alert(1)>'

    signed(theirs / "bench.json", hostile)
    done = call("bench", "page", made, theirs, "--out", "board.html")
    assert done.exit_code == 0, done.output
    page = Path("board.html").read_text()
    assert "<script>alert" not in page and "<img src=x" not in page and page.count("<script>") == 1
    assert str(made) in page and "from 2 files" in page
    assert (
        re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", page) and "http:" not in page.split("<body>")[0]
    )
    other = signed(theirs / "bench.json", lambda value: value.update(suite="another"))
    assert call("bench", "page", made, other).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--task", "nods"),
        ("--algorithm", "fedrigde"),
        ("--algorithm", "no_module:Mine"),
        ("--attack", "no-such"),
        ("verify", "none.json"),
    ],
)
def test_words_that_are_wrong(small: None, words: tuple[str, ...]) -> None:
    assert call("bench", *words).exit_code == 2
    assert not Path("runs").exists()
