"""A run that starts and stops is no refusal: its cells are named as failed, with the error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from result_parts import cells

from secure_fedgraph.algorithms.fedsage import FedSage
from secure_fedgraph.attacks import LabelCounts, VocabularySupport
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.audits.grid.report import verdict
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput, HostileMessage, Incompatible
from secure_fedgraph.experiment.config import load
from secure_fedgraph.report.first_screens.readers import read_under

pytestmark = pytest.mark.filterwarnings("ignore::secure_fedgraph.privacy.budget_warnings.EarlyStopWarning")

SMALL = ["dataset.nodes=90", "dataset.features=24", "training.hidden=[8,4]"]
BUDGET = ["protection.norm=1", "protection.multiplier=0.9", "epsilon=12", "unit=client", "rounds=6"]
TWO = [VocabularySupport, LabelCounts]
CELLS = {("a1-vocabulary-support", "server"), ("a4-label-counts", "server")}


def audit(policies: list[str], *changes: str, out: Path | None = None, seen: Any = None) -> Audit:
    experiment = load(None, {"data": "synthetic-citation"}, [*SMALL, *changes])
    more = {} if seen is None else {"progress": seen}
    return grid.audit(experiment, policies, TWO, [0], out, controls=(), **more)


def call(folder: Path, *arguments: str) -> tuple[Result, dict[str, Any]]:
    command = ["audit", "--data", "synthetic-citation", "--attack", "a1,a4", "--control", "one full step"]
    settings = [f"--set={one}" for one in SMALL]
    command += [*settings, *arguments, "--workers", "1", "--out", str(folder)]
    result = CliRunner().invoke(main, command)
    return result, json.loads((folder / "audit.json").read_text())


def stop_in(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception, after: bool = False) -> None:
    """Lets every run of FedSage that has so many rounds stop there, before or after its messages."""
    real = FedSage.round

    def round(self: Any, round: Any, state: Any) -> Any:
        if round.number != number:
            return real(self, round, state)
        if after:
            real(self, round, state)
        raise error

    monkeypatch.setattr(FedSage, "round", round)


def test_a_budget_that_ends_a_run_midway_is_no_refusal(tmp_path: Path) -> None:
    said: list[str] = []
    found = audit(["local_dp"], *BUDGET, out=tmp_path, seen=said.append)
    assert not found.cells and not found.runs
    assert {(row["attack"], row["adversary"]) for row in found.not_run} == CELLS
    assert all(row["failed"] and row["policy"] == "local_dp" for row in found.not_run)
    (reason,) = {row["reason"] for row in found.not_run}
    assert reason.startswith("its run stopped: BudgetExhausted: ")
    assert any(reason in line for line in said)
    assert not list(tmp_path.glob("cells/*"))  # a later call tries it again


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", [HostileMessage, Incompatible, BadInput, KeyError])
def test_a_mistake_midway_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], after: bool
) -> None:
    stop_in(monkeypatch, 3, kind("a bug in round 3"), after)
    found = audit(["plaintext"], "rounds=4")
    assert not found.cells and {(row["attack"], row["adversary"]) for row in found.not_run} == CELLS
    assert all(row["failed"] for row in found.not_run)
    (reason,) = {row["reason"] for row in found.not_run}
    assert reason.startswith(f"its run stopped: {kind.__name__}: ")


def test_a_refusal_before_anything_was_sent_is_one_still() -> None:
    found = audit(["sealed"], "rounds=2")
    assert found.cells and {cell["outcome"] for cell in found.cells} == {"refused"} and not found.not_run
    assert "refused before round 1" in verdict(found.cells)


def test_the_other_runs_of_the_grid_keep_their_cells() -> None:
    found = audit(["plaintext", "local_dp"], *BUDGET)
    assert {cell["policy"] for cell in found.cells} == {"plaintext"}
    assert {row["policy"] for row in found.not_run} == {"local_dp"}
    told = verdict(found.cells, found.not_run)
    assert "local_dp: no attack has a result." in told and "refused" not in told


def test_the_command_ends_as_with_every_cell_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in(monkeypatch, 3, HostileMessage("a bug in round 3"))
    result, found = call(tmp_path / "a", "-v", "--policy", "plaintext", "--set=rounds=4")
    assert result.exit_code == 1, result.output
    assert "its run stopped" in result.stderr and "its run stopped" in result.stdout
    assert {row["variant"] for row in found["not_run"]} == {"as configured"}  # the control has one round
    assert all(row["failed"] for row in found["not_run"])
    page = (tmp_path / "a" / "report.html").read_text()
    assert "its run stopped: HostileMessage: a bug in round 3" in page
    for text in (page, result.output, json.dumps(found)):
        assert "Nothing was sent" not in text and "efused before round 1" not in text
        assert "No channel carried anything" not in text


def test_a_policy_with_a_refused_and_a_stopped_run_is_not_called_refused() -> None:
    refused = {
        "algorithm": "fedsage", "policy": "masked", "attack": "a1", "outcome": "refused", "reason": "no"
    }  # fmt: skip
    lost = {"algorithm": "fedsage", "policy": "masked", "failed": True}
    assert "refused" in verdict([refused]) and "refused" not in verdict([refused], [lost])
    assert "refused" in verdict([refused], [{**lost, "failed": False}])
    (row,) = read_under(cells([refused]), ["masked"])
    assert row.state == "refused"
    assert read_under(cells([refused]), ["masked"], {"masked"}) == []
