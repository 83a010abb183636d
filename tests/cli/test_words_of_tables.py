"""What the tables of run and audit say in words, and with which status an audit ends that lacks a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import secure_fedgraph as sfg
from secure_fedgraph.audits.grid import attacked
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.cli.main import main
from secure_fedgraph.cli.tables import run_tables
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import read_json
from secure_fedgraph.experiment.schema import RunResult, as_read
from secure_fedgraph.experiment.schema.run import Alone, Baselines
from secure_fedgraph.running.run import Run

SMALL = ["--algorithm", "fedavg", "--data", "synthetic-citation", "--clients", "3", "--rounds", "1"]
SMALL += ["--set", "dataset.nodes=90", "--set", "dataset.features=16", "--set", "training.hidden=[8,4]"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def call(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, *SMALL])


def test_a_run_shows_its_score_its_budget_and_its_page_in_twelve_lines() -> None:
    lines = call("run", "--policy", "plaintext").stdout.splitlines()
    shown = next(at for at, line in enumerate(lines) if line.startswith("accuracy"))
    assert len(lines) - shown <= 12 and lines[-1].startswith("Report: ")
    assert any(line.startswith("epsilon: client inf") for line in lines)


def test_what_a_run_shows_beyond_its_channels_and_its_epsilon() -> None:
    said = " ".join(call("run", "-v", "--policy", "plaintext").output.split())
    assert "Channel `update` shows more than it declares: " in said
    assert "No epsilon covers weights: a digest of the final state." in said


def test_a_table_has_no_empty_column() -> None:
    """Over machines nobody knows what owners do alone."""
    assert call("run", "--policy", "plaintext", "--out", "out").exit_code == 0
    run = as_read(RunResult, read_json(Path("out/result.json"), "run"))

    def shown(alone: dict[str, float]) -> str:
        baselines = Baselines(alone=Alone(metrics=alone))
        console = Console(width=200)
        with console.capture() as said:
            console.print(*run_tables(run.model_copy(update={"baselines": baselines})))
        return said.get()

    assert "best alone" in shown({"accuracy": 0.6}) and "best alone" not in shown({})


def test_an_audit_says_beside_its_verdict_how_many_trials_it_rests_on() -> None:
    ended = call("audit", "-v", "--policy", "local_dp", "--norm", "1", "--multiplier", "2", "--attack", "a4")
    assert ended.exit_code == 0, ended.output
    said = ended.output[ended.output.index("measured on worst-case") :].splitlines()
    head, row = (next(line for line in said if word in line) for word in ("trials", "holds"))
    parts = re.compile(r"\s*[│┃]\s*|\s{2,}")  # a table has lines on a terminal alone
    heads, cells = (parts.split(line.strip()) for line in (head, row))
    assert int(cells[heads.index("trials")]) > 0


def test_an_audit_that_lacks_a_run_as_configured_does_not_end_as_if_it_were_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = attacked.execute

    def execute(experiment: Experiment, *arguments: Any, **named: Any) -> Run:
        if experiment.policy == "masked":
            raise SecureFedGraphError("a client's process ended")
        return real(experiment, *arguments, **named)

    monkeypatch.setattr(attacked, "execute", execute)
    ended = call("audit", "--policy", "plaintext,masked", "--attack", "a4", "--workers", "1")
    assert ended.exit_code == 1 and "a client's process ended" in ended.output


def test_what_holds_data_is_one_line_in_an_interpreter() -> None:
    federation = sfg.federate("synthetic-citation", clients=3, nodes=90, features=16)
    assert repr(federation) == "Federation(synthetic-citation, 3 clients, node)"
    cells = [{"leaks": True, "score": 1.0}, {"leaks": False}]
    assert repr(Audit(cells=cells)) == "Audit(2 cells, 1 leak, 0 not run)"
