"""The audit of a finished run's folder: what was randomised, a shared ledger, another run's model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.conformance.rows import FAILED, PASSED
from secure_fedgraph.audits.grid.folders import audit_folder, read_folder
from secure_fedgraph.cli.main import main
from secure_fedgraph.cli.predicting.predicting import found
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment import released
from secure_fedgraph.experiment.config import experiment_of
from secure_fedgraph.experiment.results import begin, execute, finish, mean_result, run_result, write_json
from secure_fedgraph.storage import manifest

READ_BY_NONE = [ATTACKS["c1-neighgen-single"]]
SMALL = {"nodes": 90, "features": 16}


def finished(folder: Path, algorithm: str = "fedavg", policy: str = "plaintext", **more: Any) -> Path:
    """A run's folder as the command line leaves it."""
    sizes = {"hidden": [4], "fanout": [2]} if algorithm == "fedavg" else {}
    asked = {
        "algorithm": algorithm,
        "data": "synthetic-citation",
        "policy": policy,
        "rounds": 2,
        "clients": 3,
    }
    experiment = experiment_of(
        {**asked, "dataset": SMALL, "transcript": "full", "training": sizes, "allow_plaintext": True, **more}
    )
    run = execute(
        experiment,
        folder,
        checkpoints=True,
        on_start=lambda: begin(folder, experiment, [experiment.seed], "run"),
    )
    write_json(folder / "result.json", run_result(run, experiment, "run"))
    released.keep(run, folder)
    finish(folder, experiment.ledger)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def change(folder: Path, edit: Callable[[dict[str, Any]], object], ledger: Path | None = None) -> None:
    value = json.loads((folder / "result.json").read_text())
    edit(value)
    (folder / "result.json").write_text(json.dumps(value))
    manifest.write(folder, ledger)  # as the folder's owner can


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on one ledger."""
    place = tmp_path_factory.mktemp("sharing")
    for number, (rate, epsilon) in enumerate([(0.01, 2.0), (0.02, 8.0)]):
        training = {"hidden": [4], "fanout": [2], "learning_rate": rate}
        shared = {"ledger": place / "shared.jsonl", "epsilon": epsilon, "rounds": 1, "training": training}
        finished(place / f"run-{number}", policy="distributed_dp", **shared)
    return place


def test_a_shared_ledger_is_compared_where_it_is_named(sharing: Path, tmp_path: Path) -> None:
    run, ledger = Path(shutil.copytree(sharing / "run-0", tmp_path / "run")), sharing / "shared.jsonl"
    _, audit = audit_folder(run, READ_BY_NONE)
    assert "--ledger" in {row["check"]: row.get("reason", "") for row in audit.conformance}["composed"]
    _, audit = audit_folder(run, READ_BY_NONE, ledger=ledger)
    assert {row["check"]: row["outcome"] for row in audit.conformance}["composed"] == PASSED
    out = ["--out", str(tmp_path / "model.pt"), "--overwrite"]
    commands = [["report", str(run)], ["export", str(run), *out]]
    for command in commands:
        assert "--ledger" in CliRunner().invoke(main, command).stderr
    assert "Not checked" in (tmp_path / "model.pt.card.md").read_text()
    for command in commands:
        assert CliRunner().invoke(main, [*command, "--ledger", str(ledger)]).stderr == ""
    assert "Not checked" not in (tmp_path / "model.pt.card.md").read_text()
    (tmp_path / "empty.jsonl").touch()
    for command in commands:
        done = CliRunner().invoke(main, [*command, "--ledger", str(tmp_path / "empty.jsonl")])
        assert done.exit_code == 2 and "is not the ledger" in done.stderr


def test_the_model_of_another_run_is_neither_audited_nor_exported(folder: Path, tmp_path: Path) -> None:
    other = finished(tmp_path / "other", seed=1)
    (folder / "released.model").write_bytes((other / "released.model").read_bytes())
    with pytest.raises(BadInput, match=r"released\.model is not as its run left it"):
        audit_folder(folder, READ_BY_NONE)
    asked = ["export", str(folder), "--out", str(tmp_path / "model.pt")]
    assert CliRunner().invoke(main, asked).exit_code == 2


def test_of_several_seeds_one_is_audited(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    change(folder, lambda v: v.update(mean_result([result])))
    (folder / "seed-0").mkdir()
    with pytest.raises(BadInput, match="seed-0"):
        audit_folder(folder, READ_BY_NONE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of what is left in plaintext, as was allowed
@pytest.mark.parametrize(
    ("algorithm", "policy", "more"),
    [
        ("fedavg", "masked", {"evaluation": "in_band"}),
        ("fedavg", "masked", {"evaluation": "at_home"}),
        ("fedavg", "plaintext", {"evaluate_sample": 8, "evaluate_every": 2}),
        ("globsage", "plaintext", {}),
        ("local", "plaintext", {}),
        ("glasu", "masked", {}),
        ("fedridge", "distributed_dp", {"epsilon": 8.0, "unit": "node"}),
        ("fedgcn", "masked", {}),
        ("fedsage", "masked", {"epsilon": 8.0, "unit": "node", "rounds": 1}),
        ("glasu", "masked", {"epsilon": 8.0, "unit": "edge", "rounds": 1}),
        ("apflgate", "masked", {"data": "synthetic-molecules", "dataset": {"graphs": 60}}),
        ("gin-fedavg", "masked", {"data": "synthetic-molecules", "dataset": {"graphs": 60}}),
        ("fairgraphfl", "strictest", {"data": "synthetic-molecules", "dataset": {"graphs": 60}}),
    ],
)
def test_honest_folders_pass(algorithm: str, policy: str, more: dict[str, Any], tmp_path: Path) -> None:
    _, audit = audit_folder(finished(tmp_path / "run", algorithm, policy, **more), READ_BY_NONE)
    assert FAILED not in {row["outcome"] for row in audit.conformance}


@pytest.mark.slow
def test_the_model_of_a_form_predicts(tmp_path: Path) -> None:
    folder = finished(tmp_path / "run", "fedsage", "masked", epsilon=8.0, unit="node", rounds=1)
    assert type(found(folder, None, None).algorithm) is type(read_folder(folder)[1].make_algorithm())


SMALLER = ["--set", "dataset.nodes=90", "--set", "dataset.features=24", "--set", "transcript=full"]
GLASU = [
    *("--algorithm", "glasu", "--unit", "edge", "--set", "training.sampler=public"),
    *("--set", "training.public_nodes=30", "--set", "training.steps=2", "--set", "training.hidden=8"),
]
FEDAVG = ["--algorithm", "fedavg", "--unit", "label", "--set", "training.hidden=[8]"]


@pytest.mark.slow
@pytest.mark.parametrize("asked", [GLASU, [*FEDAVG, "--set", "training.fanout=[2]"]], ids=["links", "labels"])
def test_what_was_randomised_is_rebuilt_from_the_plan(asked: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = ["--data", "synthetic-citation", "--policy", "masked", "--epsilon", "6", "--rounds", "1"]
    made = CliRunner().invoke(main, ["run", *asked, *given, *SMALLER, "--out", str(out)])
    assert made.exit_code == 0, made.output
    _, audit = audit_folder(out, [ATTACKS["d1-index-lists"]])
    failed = [row for row in audit.conformance if row["outcome"] == "failed"]
    assert not failed
    assert {"randomised data"} <= {row["check"] for row in audit.conformance if row["outcome"] == "passed"}
    assert [row["outcome"] for row in audit.empirical] == ["holds"]
