"""``audit DIR`` works out again what of a result follows from its rounds, its configuration and its data."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.conformance.printed import check_printed
from secure_fedgraph.audits.conformance.rows import FAILED, NOTHING, PASSED
from secure_fedgraph.audits.grid.folders import audit_folder
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput, BrokenClaim
from secure_fedgraph.experiment import released
from secure_fedgraph.experiment.config import experiment_of
from secure_fedgraph.experiment.results import begin, execute, mean_result, run_result, write_json

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
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture(scope="module")
def noised_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("noised") / "run", policy="distributed_dp", epsilon=8.0)


@pytest.fixture
def noised(noised_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(noised_once, tmp_path / "noised"))


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads((folder / "result.json").read_text())
    edit(value)
    (folder / "result.json").write_text(json.dumps(value))


def worst_on_validation(result: dict[str, Any]) -> None:
    """Another round than this one stays the best, so that no figure above the rounds differs."""
    result["rounds"][0]["accuracy"]["validation"] = -1.0
    best = {key: value for key, value in result["rounds"][1]["accuracy"].items() if key != "validation"}
    result["accuracy"]["best_by_validation"] = {"round": 2, **best}


CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "the last score": (r"accuracy\.global", lambda v: v["accuracy"].update({"global": 0.9})),
    "a score of the last round": (
        r"accuracy\.(global|best)",
        lambda v: v["rounds"][-1]["accuracy"].update({"global": 0.95}),
    ),
    "a score that is no share": (r"rounds\.1\.accuracy\.validation is -1", worst_on_validation),
    "the best round": (
        r"best_by_validation\.round is 7",
        lambda v: v["accuracy"]["best_by_validation"].update(round=7),
    ),
    "the best score": ("best_on_test", lambda v: v["accuracy"]["best_on_test"].update({"global": 0.99})),
    "no best score": ("best_on_test", lambda v: v["accuracy"].pop("best_on_test")),
    "features": (r"data\.features is 9", lambda v: v["data"].update(features=9)),
    "sizes": (r"data\.partition\.sizes", lambda v: v["data"]["partition"].update(sizes=[30, 30, 30])),
    "source": (r"data\.source", lambda v: v["data"].update(source="Cora")),
    "metric": ("metric is", lambda v: v.update(metric="auc")),
    "commonest class": ("commonest_class", lambda v: v.update(commonest_class=0.1)),
    "pooled": ("federated", lambda v: v.update(federated=False)),
    "who scored": (r"evaluation\.mode", lambda v: v["evaluation"].update(mode="at_home")),
    "what is exact": ("released_exactly", lambda v: v.update(released_exactly=[])),
    "form": (r"form\.fanout", lambda v: v.update(form={"fanout": [5]})),
    "uploads read": (r"channels\.update\.read_singly", lambda v: v["channels"][0].update(read_singly=0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_figure_that_does_not_follow_is_named(name: str, folder: Path) -> None:
    words, edit = CHANGES[name]
    change(folder, edit)
    with pytest.raises(BadInput, match=words):
        audit_folder(folder, READ_BY_NONE)


PLANNED: dict[str, Callable[[dict[str, Any]], object]] = {
    "budget.epsilon": lambda v: v["budget"].update(epsilon=2.0),
    "budget.holders": lambda v: v["budget"].update(holders=3),
    "budget.adaptive": lambda v: v["budget"].update(adaptive=True),
    "budget.planned": lambda v: v["budget"].update(planned=False),
    "budget is null": lambda v: v.update(budget=None),
    "plan": lambda v: v["plan"][0].update(uses=1),
    "noise_to_signal": lambda v: v.update(noise_to_signal=0.001),
    "privacy.node.delta": lambda v: v["privacy"]["node"].update(delta=0.5),
}


SOON = ("budget.epsilon", "plan", "noise_to_signal")


@pytest.mark.parametrize(
    "place", [one if one in SOON else pytest.param(one, marks=pytest.mark.slow) for one in PLANNED]
)
def test_what_the_configuration_decides_of_a_budget_is_compared(place: str, noised: Path) -> None:
    change(noised, PLANNED[place])
    with pytest.raises(BadInput, match=re.escape(place)):
        audit_folder(noised, READ_BY_NONE)


CHARGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "relation": lambda v: v["privacy"]["client"].update(relation="replace"),
    "holders": lambda v: v["privacy"]["client"].update(holders=3),
    "computational": lambda v: v["privacy"]["client"].update(computational=False),
    "accountant": lambda v: v["privacy"]["client"].update(accountant="pld"),
    "budget's relation": lambda v: v["budget"].update(relation="replace"),
    "no epsilon for one node": lambda v: v["privacy"].pop("node"),
    "no epsilon is printed against server": lambda v: v["privacy"]["node"]["readers"].pop("server"),
    "reason": lambda v: v["privacy"]["client"].update(reason="nothing leaks"),
    "budget's epsilon": lambda v: v["budget"].update(epsilon=9.0),
}


@pytest.mark.parametrize("key", CHARGED)
def test_what_stands_beside_an_epsilon_is_that_of_the_charges(key: str, noised: Path) -> None:
    assert check_printed(noised) == ""
    change(noised, CHARGED[key])
    with pytest.raises(BrokenClaim, match=key.removeprefix("budget's ")):
        check_printed(noised)
    if key == "relation":
        _, audit = audit_folder(noised, READ_BY_NONE)
        assert {row["check"]: row["outcome"] for row in audit.conformance}["composed"] == FAILED


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
    out = ["--to", "state_dict", "--out", str(tmp_path / "model.pt"), "--overwrite"]
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
        assert "holds no charge" in done.stderr
    change(run, lambda v: v["privacy"]["client"].update(epsilon=0.1))
    for command in commands:
        assert CliRunner().invoke(main, [*command, "--ledger", str(ledger)]).exit_code == 4
    change(run, lambda v: v["config"].update(ledger=None))
    with pytest.raises(BadInput, match="of its own"):
        check_printed(run, ledger)


def test_the_model_of_another_run_is_neither_audited_nor_exported(folder: Path, tmp_path: Path) -> None:
    other = finished(tmp_path / "other", seed=1)
    (folder / "released.model").write_bytes((other / "released.model").read_bytes())
    with pytest.raises(BadInput, match=r"released\.model is not the model of the result"):
        audit_folder(folder, READ_BY_NONE)
    asked = ["export", str(folder), "--to", "state_dict", "--out", str(tmp_path / "model.pt")]
    assert CliRunner().invoke(main, asked).exit_code == 2
    (folder / "released.model").unlink()
    (folder / "released.model").symlink_to(other / "released.model")
    with pytest.raises(BadInput, match="no plain file"):
        audit_folder(folder, READ_BY_NONE)
    assert "no plain file" in CliRunner().invoke(main, asked).stderr
    (folder / "released.model").unlink()
    assert "names its digest" in CliRunner().invoke(main, asked).stderr
    _, audit = audit_folder(folder, READ_BY_NONE)
    assert "model" in {row["check"] for row in audit.conformance if row["outcome"] == NOTHING}


def test_a_model_that_the_result_does_not_name_is_not_passed_off_as_its_own(
    folder: Path, tmp_path: Path
) -> None:
    asked = ["export", str(folder), "--to", "state_dict", "--out", str(tmp_path / "model.pt")]
    change(folder, lambda v: v.update(released=None))
    assert CliRunner().invoke(main, asked).exit_code == 2
    change(folder, lambda v: v.pop("released"))
    assert "may be another run's" in CliRunner().invoke(main, asked).stderr
    assert "Not checked: the model may be" in (tmp_path / "model.pt.card.md").read_text()


def test_of_several_seeds_one_is_audited(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    change(folder, lambda v: v.update(mean_result([result])))
    (folder / "seed-0").mkdir()
    with pytest.raises(BadInput, match="seed-0"):
        audit_folder(folder, READ_BY_NONE)


def test_a_file_that_nothing_is_compared_with_is_named(folder: Path) -> None:
    (folder / "checkpoint" / "experiment.json").unlink()
    (folder / "transcript" / "notes.jsonl").unlink()
    _, audit = audit_folder(folder, READ_BY_NONE)
    reasons = {row["check"]: row.get("reason", "") for row in audit.conformance if row["outcome"] == NOTHING}
    assert "experiment.json is missing" in reasons["asked"]
    assert "notes.jsonl is missing" in reasons["notes"]


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
        ("apflgate", "masked", {"data": "synthetic-molecules", "dataset": {"graphs": 60}}),
        ("gin-fedavg", "masked", {"data": "synthetic-molecules", "dataset": {"graphs": 60}}),
        ("fairgraphfl", "strictest", {"data": "synthetic-molecules", "dataset": {"graphs": 60}}),
    ],
)
def test_honest_folders_pass(algorithm: str, policy: str, more: dict[str, Any], tmp_path: Path) -> None:
    _, audit = audit_folder(finished(tmp_path / "run", algorithm, policy, **more), READ_BY_NONE)
    rows = {row["check"]: row["outcome"] for row in audit.conformance}
    assert rows["asked"] == rows["notes"] == PASSED
