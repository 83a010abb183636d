"""``--algorithm module:Class``: an own algorithm runs, is audited, and keeps to its channels."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from class_means import MEANS
from click.testing import CliRunner, Result

from secure_fedgraph.cli.main import main

BASE = (
    "from secure_fedgraph.attacks import Attack, Blind\n"
    + MEANS
    + '''
class AsksUndeclared(Means):
    """A verb that the channel does not declare."""
    name = "asks-undeclared"

    def round(self, round, state):
        round.gather(self.STATISTICS)
        return state

class NumbersTheState(Means):
    """A state whose key is no text."""
    name = "numbers-the-state"

    def round(self, round, state):
        return {1: super().round(round, {})["means"]}

class Sizes(Attack):
    """How many nodes an owner trains on, badly guessed."""
    id, family, summary, channel = "own-sizes", "weights", "sizes of owners", "statistics"

    def run(self, view, knowledge):
        raise Blind("sums tell no owner's size")

class Twin(Sizes):
    """Another's id."""
    id = "a4-label-counts"

class NoAlgorithm:
    pass
'''
)
FLAGS = ["--data", "synthetic-citation", "--set=dataset.nodes=90", "--set=dataset.features=16"]
FLAGS += ["--policy", "masked", "--rounds", "1", "--clients", "2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_means.py").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("own_means", None)


def call(command: str, name: str, *more: str) -> Result:
    return CliRunner().invoke(
        main, [command, "--algorithm", f"own_means:{name}", *FLAGS, *more, "--out", "out"]
    )


def test_it_runs_and_is_audited(caplog):
    done = call("run", "Means", "--json")
    assert done.exit_code == 0, done.output
    assert "clients check nothing of what they are given on statistics" in caplog.text
    result = json.loads(done.stdout)
    assert result["config"]["algorithm"] == "own_means:Means"
    assert result["channels"][0]["name"] == "statistics" and result["accuracy"]["global"] > 0.3
    done = CliRunner().invoke(
        main,
        ["audit", "--algorithm", "own_means:Means", *FLAGS, "--attack", "a1", "--json", "--out", "audited"],
    )
    assert done.exit_code == 0, done.output
    audit = json.loads(done.stdout)
    assert {row["outcome"] for row in audit["conformance"]} <= {"passed", "nothing to check"}
    assert {row["check"] for row in audit["conformance"]} >= {"domains", "uniform", "ledger", "behaviour"}
    assert {cell["outcome"] for cell in audit["cells"]} == {"blind"}  # none of the attacks reads its channel


def test_an_own_attack_is_named_in_the_same_way():
    done = call("audit", "Means", "--attack", "own_means:Sizes", "--json")
    assert done.exit_code == 0, done.output
    cells = json.loads(done.stdout)["cells"]
    assert {(cell["attack"], cell["outcome"]) for cell in cells} == {("own-sizes", "blind")}
    assert any("sums tell no owner's size" in cell["reason"] for cell in cells)
    done = call("audit", "Means", "--attack", "own_means:Means")
    assert done.exit_code == 2 and "no subclass of secure_fedgraph.Attack" in done.stderr
    done = call("audit", "Means", "--attack", "own_means:Twin")
    assert done.exit_code == 2 and "has the id of another, 'a4-label-counts'" in done.stderr


def test_a_verb_that_the_channel_does_not_declare_is_refused():
    done = call("run", "AsksUndeclared")
    assert done.exit_code == 3, done.output
    assert "channel 'statistics' declares sum: use reduce, not gather" in done.output


def test_a_state_of_another_type_is_named_as_in_python():
    done = call("run", "NumbersTheState")
    assert done.exit_code == 2, done.output
    assert "numbers-the-state: round returns a dict from names" in done.stderr, done.output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_means:Nobody", "cannot be imported"),
        ("nowhere_to_be_found:Means", "cannot be imported"),
        ("own_means:NoAlgorithm", "is no subclass of secure_fedgraph.Algorithm"),
    ],
)
def test_a_name_that_nothing_answers_to(name: str, words: str):
    done = CliRunner().invoke(main, ["run", "--algorithm", name, *FLAGS, "--out", "out"])
    assert done.exit_code == 2 and words in done.output
