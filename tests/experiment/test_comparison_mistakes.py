"""Mistakes end a comparison before work; what fails on the way is a row, and no other row's loss."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from class_means import MEANS
from click.testing import CliRunner, Result
from command_line import compared
from in_this_process import at_once

import secure_fedgraph as sfg
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.cli.comparing import comparing
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.experiment import code_digest
from secure_fedgraph.experiment.compare import runner
from secure_fedgraph.experiment.compare.points import ALONE, NO_PRIVACY, points
from secure_fedgraph.experiment.compare.runs import REFUSED, run_point
from secure_fedgraph.experiment.config import load

SMALL = ["--data", "synthetic-citation", "--set", "dataset.nodes=60", "--set", "dataset.features=16"]
SAGE = [*SMALL, "--algorithm", "fedsage", "--set", "training.hidden=[8,4]"]
OWN = (
    MEANS
    + '''
import multiprocessing, os

class Dies(Means):
    """Its process is gone after the rounds that are tried, wherever it is not the command's own."""
    name = "dies"

    def round(self, round, state):
        if round.number > 2 and multiprocessing.parent_process() is not None:
            os._exit(9)
        return super().round(round, state)
'''
)


def call(out: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["compare", "--rounds", "1", "--quiet", "--out", str(out), *more])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_compared.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("own_compared", None)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([*SAGE, "--policy", "masked,nosuch"], "unknown policy 'nosuch'"),
        ([*SAGE, "--policy", "masked", "--attack", "c1"], "--attack c1 reads nothing that"),
        ([*SAGE, "--policy", "masked", "--attack", "mash"], "fedsage or local sends as configured"),
        ([*SAGE, "--policy", "masked", "--attack", "nosuch"], "unknown attack 'nosuch'"),
        ([*SAGE, "--epsilon", "inf", "--policy", "local_dp"], "needs protection.norm"),
        (
            [*SMALL, "--algorithm", "fedego", "--policy", "masked"],
            "fedego-plaintext: split.local_tests = 200",
        ),
        ([*SAGE, "--policy", "masked", "--set", "protection.bits=17"], "bits 17"),
    ],
)
def test_a_mistake_is_said_before_any_work(tmp_path, monkeypatch, flags, told):
    at_once(monkeypatch)
    monkeypatch.setattr(runner, "run_point", lambda *_: pytest.fail("work began"))
    done = call(tmp_path / "out", *flags)
    assert done.exit_code == 2 and told in done.output, done.output
    assert not (tmp_path / "out").exists()


def test_without_a_finite_budget_the_strictest_policy_stands_beside_the_baselines(tmp_path, monkeypatch):
    at_once(monkeypatch)
    done = call(tmp_path, *SAGE, "--epsilon", "inf")
    assert done.exit_code == 0, done.output
    assert set(compared(tmp_path)) == {"fedsage-plaintext", "local-plaintext", "fedsage-strictest"}


def test_what_fails_on_the_way_is_a_row_and_status_1(tmp_path, monkeypatch):
    at_once(monkeypatch)
    run = runner.run_point

    def failing(config, folder, key):
        if config["policy"] == "masked":
            raise ZeroDivisionError("by nought")
        return run(config, folder, key)

    monkeypatch.setattr(runner, "run_point", failing)
    done = call(tmp_path, *SAGE, "--policy", "masked,homomorphic")
    assert done.exit_code == 1 and "fedsage-masked: seed 0: ZeroDivisionError: by nought" in done.output
    found = compared(tmp_path)
    assert {name: row["outcome"] for name, row in found.items()} == {
        "fedsage-plaintext": "ran", "local-plaintext": "ran",
        "fedsage-masked": "failed", "fedsage-homomorphic": "ran",
    }  # fmt: skip
    assert "by nought" in (tmp_path / "report.html").read_text()
    assert "by nought" in (tmp_path / "compare.csv").read_text()
    monkeypatch.setattr(runner, "run_point", run)  # a failure is not kept
    assert call(tmp_path, *SAGE, "--policy", "masked,homomorphic").exit_code == 0
    assert compared(tmp_path)["fedsage-masked"]["outcome"] == "ran"


def test_where_nothing_ran_a_mistake_is_status_2(tmp_path, monkeypatch):
    at_once(monkeypatch)

    def failing(*_: Any) -> float:
        raise comparing.BadInput("a setting that only a round sees")

    monkeypatch.setattr(runner, "run_point", failing)
    done = call(tmp_path, *SAGE, "--policy", "masked")
    assert done.exit_code == 2 and "no point ran. fedsage-plaintext: seed 0: a setting" in done.output
    assert {row["outcome"] for row in compared(tmp_path).values()} == {"failed"}
    assert "No point ran" in (tmp_path / "report.html").read_text()


def test_a_mistake_that_only_a_run_sees_is_kept_as_no_refusal(tmp_path, monkeypatch):
    def failing(*_: Any, **__: Any) -> None:
        raise comparing.BadInput("a setting that only a round sees")

    monkeypatch.setattr("secure_fedgraph.experiment.compare.runs.execute", failing)
    base = load(None, {"data": "synthetic-citation", "algorithm": "fedsage", "policy": "masked"}, ())
    with pytest.raises(comparing.BadInput):
        runner.run_point(base.model_dump(mode="json"), tmp_path)
    assert {path.name for path in tmp_path.rglob("*.json")} == {"key.json"}


def test_attacks_that_fail_cost_no_accuracy(tmp_path, monkeypatch):
    at_once(monkeypatch)

    def failing(*_: Any, **__: Any) -> None:
        raise RuntimeError("no judge")

    with monkeypatch.context() as patch:
        patch.setattr(grid, "audit", failing)
        done = call(tmp_path, *SAGE, "--policy", "masked", "--attack", "a1")
    assert done.exit_code == 1 and "attacks on fedsage-plaintext: RuntimeError: no judge" in done.output
    row = compared(tmp_path)["fedsage-plaintext"]
    assert row["outcome"] == "ran" and "no judge" in row["leak_failed"]
    assert "no judge" in (tmp_path / "report.html").read_text()


def test_a_process_that_dies_is_one_row(tmp_path, own):
    flags = [*SMALL, "--workers", "1", "--policy", "plaintext"]
    done = call(tmp_path / "out", "--algorithm", "own_compared:Means,own_compared:Dies", *flags, "--rounds=3")
    assert done.exit_code == 1 and "its process ended with status 9" in done.output, done.output
    assert {name: row["outcome"] for name, row in compared(tmp_path / "out").items()} == {
        "own_compared.Means-plaintext": "ran", "local-plaintext": "ran",
        "own_compared.Dies-plaintext": "failed",
    }  # fmt: skip


def test_a_run_that_stops_midway_is_a_failure_and_no_refusal(tmp_path, monkeypatch):
    """Messages left the clients: a row that says "refused" would read like protection."""
    answer = sfg.FedAvg.update

    def stops(self: Any, client: Any, given: Any) -> Any:
        if client.round == 2:
            raise HostileMessage("a bug in round 2")
        return answer(self, client, given)

    monkeypatch.setattr(sfg.FedAvg, "update", stops)
    changes = ["algorithm=fedavg", "dataset.nodes=60", "dataset.features=16", "rounds=3", "policy=plaintext"]
    config = load(None, {"data": "synthetic-citation"}, changes).model_dump()
    folder = tmp_path / "runs" / "point" / "seed-0"
    with pytest.raises(HostileMessage):
        run_point(config, folder)
    assert not (folder / REFUSED).exists()


def test_an_own_algorithm_of_other_code_is_run_again(tmp_path, monkeypatch, own):
    at_once(monkeypatch)
    flags = ["--algorithm", "own_compared:Means", *SMALL, "--policy", "masked"]
    assert call(tmp_path / "out", *flags).exit_code == 0
    result = tmp_path / "out" / "runs" / "own_compared.Means-masked" / "seed-0" / "result.json"
    stamp = result.stat().st_mtime_ns
    (tmp_path / "own_compared.py").write_text(OWN + "# changed\n")
    code_digest._of_file.cache_clear()  # another call is another process
    assert call(tmp_path / "out", *flags).exit_code == 0
    assert result.stat().st_mtime_ns > stamp


@pytest.mark.parametrize("algorithms", [["local", "fedsage"], ["fedsage", "local"], ["local"]])
def test_who_stays_alone_is_no_collaboration(algorithms):
    base = load(None, {"data": "synthetic-citation", "algorithm": algorithms[0]}, ())
    kinds = {p.name: p.kind for p in points(base, algorithms, ["plaintext", "masked"], [])}
    assert kinds["local-plaintext"] == ALONE
    assert kinds.get("fedsage-plaintext", NO_PRIVACY) == NO_PRIVACY
