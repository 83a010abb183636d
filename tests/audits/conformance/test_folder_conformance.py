"""``audit DIR`` checks what a finished run's folder tells, besides attacking it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from secure_fedgraph.audits.conformance.ledger import composed
from secure_fedgraph.audits.conformance.rows import OF_CHARGES
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.protocol.transcript import Transcript
from secure_fedgraph.storage import manifest

RUN = ["run", "--data", "synthetic-citation", "--rounds", "2", "--policy", "distributed_dp", "--epsilon", "8"]
RUN += ["--set", "dataset.nodes=90", "--set", "dataset.features=24", "--set", "training.hidden=[8,4]"]
RUN += ["--unit", "client", "--anyway", "--set", "transcript=full", "--quiet"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    done = CliRunner().invoke(main, [*RUN, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def audit(folder: Path, *flags: str) -> tuple[Result, dict[str, Any]]:
    result = CliRunner().invoke(main, ["audit", str(folder), "--attack", "a1", *flags])
    path = folder / "audit.json"
    return result, json.loads(path.read_text()) if path.is_file() else {}


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {row["check"]: row["outcome"] for row in found["conformance"]}


def test_a_run_that_keeps_its_promises_passes(folder: Path) -> None:
    result, found = audit(folder)
    assert result.exit_code == 0, result.output
    told = outcomes(found)
    assert set(told.values()) == {"passed"}
    assert {"composed", "width", "correlation", "clip", "predictable", "behaviour"} < set(told)
    (noise,) = found["empirical"]
    assert noise["noise"] == "channel update" and noise["outcome"] == "holds"
    assert 0 < noise["lower"] < noise["claim"] < 8  # one upload of two


def test_a_charge_that_is_missing_breaks_a_claim(folder: Path) -> None:
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"update"' in line)
    ledger.write_text("".join(lines[:at] + lines[at + 1 :]))
    manifest.write(folder)
    result, found = audit(folder)
    assert result.exit_code == 4 and outcomes(found)["ledger"] == "failed", result.output
    assert any("fails the check 'ledger'" in text for text in found["broken"])


def test_less_noise_than_was_planned_breaks_a_claim(folder: Path) -> None:
    """The plan says what the noise was to be: on the wire it is smaller."""
    spoil(folder, lambda v: v["plan"][0].update(multiplier=3 * v["plan"][0]["multiplier"]))
    result, found = audit(folder)
    assert result.exit_code == 4, result.output
    assert "failed" in outcomes(found).values()


def spoil(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "result.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    manifest.write(folder)  # as the folder's owner can, and as a run would whose code is wrong


SPOILT: dict[str, Callable[[dict[str, Any]], object]] = {
    "epsilon": lambda v: v["privacy"]["node"].update(epsilon=0.01),
    "reader": lambda v: v["privacy"]["client"]["readers"].update(outsider=0.01),
    "delta": lambda v: v["privacy"]["node"].update(delta=1e-9),
    "nothing printed": lambda v: v.update(privacy={}),
}


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT)
def test_less_than_the_ledger_comes_to_is_no_epsilon(
    change: Callable[[dict[str, Any]], object], folder: Path
) -> None:
    told, charges = folder / "result.json", read_ledger(folder / "ledger.jsonl")
    run = SimpleNamespace(charges=charges, federation=SimpleNamespace(holders=1))

    def found() -> list[Any]:
        result = RunResult.model_validate_json(told.read_text())
        return list(composed(SimpleNamespace(run=run, result=result)))  # type: ignore[arg-type]

    assert not found()
    spoil(folder, change)
    assert found()


def test_a_smaller_epsilon_in_the_file_breaks_a_claim(folder: Path) -> None:
    spoil(folder, SPOILT["epsilon"])
    result, found = audit(folder)
    assert result.exit_code == 4 and outcomes(found)["composed"] == "failed", result.output


def test_no_page_or_card_is_made_of_less_than_the_ledger_comes_to(folder: Path) -> None:
    ledger, page = folder / "ledger.jsonl", folder / "report.html"
    *before, last = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join([*before, re.sub(r'"multiplier": [^,}]+', '"multiplier": 0', last)]))
    manifest.write(folder)
    page.unlink()
    for command in (["report", str(folder)], ["export", str(folder), "--out", str(folder / "model.pt")]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 4 and "result.json: one client" in result.stderr
    assert not page.exists() and not (folder / "model.pt").exists()


def test_no_page_is_made_of_a_folder_that_was_changed(folder: Path) -> None:
    page = folder / "report.html"
    page.unlink()
    with (folder / "result.json").open("a") as file:
        file.write("\n")
    for command in ("report", "resume"):
        result = CliRunner().invoke(main, [command, str(folder)])
        assert result.exit_code == 2 and "result.json is not as its run left it" in result.stderr
        assert not page.exists()
    (folder / "manifest.json").unlink()
    result = CliRunner().invoke(main, ["report", str(folder)])
    assert result.exit_code == 0 and "holds no manifest.json" in result.stderr


def test_a_page_of_a_run_whose_ledger_a_second_run_charges_too(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    more = ["--epsilon", "12", "--ledger", str(folder / "ledger.jsonl"), "--out", str(tmp_path / "second")]
    done = CliRunner().invoke(main, [*RUN, *more])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(main, ["report", str(folder)]).stderr == ""
    ledger = folder / "ledger.jsonl"
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[1:]))
    assert CliRunner().invoke(main, ["report", str(folder)]).exit_code == 2


def test_without_a_ledger_it_is_said_what_is_not_checked(folder: Path) -> None:
    (folder / "ledger.jsonl").unlink()
    manifest.write(folder)  # as that of a server whose owners keep theirs
    result, found = audit(folder)
    assert result.exit_code == 0, result.output
    assert {outcomes(found)[name] for name in OF_CHARGES} == {"nothing to check"}
    reasons = {row["check"]: row.get("reason", "") for row in found["conformance"]}
    assert all("no ledger" in reasons[name] for name in OF_CHARGES)
    (noise,) = found["empirical"]
    assert noise["outcome"] == "not audited" and "no ledger" in noise["reason"]
    assert f"Not checked ({', '.join(name for name in reasons if name in OF_CHARGES)})" in result.output


def test_a_ledger_without_charges_breaks_a_claim(folder: Path) -> None:
    (folder / "ledger.jsonl").write_text("")
    manifest.write(folder)
    result, found = audit(folder)
    assert result.exit_code == 4 and outcomes(found)["ledger"] == "failed", result.output


@pytest.mark.parametrize("flags", [["--budget-minutes", "5"], ["--workers", "2"]])
def test_what_needs_runs_is_refused_beside_a_finished_one(flags: list[str], folder: Path) -> None:
    result, _ = audit(folder, *flags)
    assert result.exit_code == 2
    assert f"{flags[0]} cannot change the finished run" in result.stderr


def test_an_audit_that_ran_nothing_is_no_success(tmp_path: Path) -> None:
    command = ["audit", "--data", "synthetic-citation", "--policy", "plaintext", "--attack", "a1"]
    command += ["--set", "dataset.nodes=90", "--set", "dataset.features=24", "--workers", "1", "--quiet"]
    result = CliRunner().invoke(
        main, [*command, "--budget-minutes", "0.0001", "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 1 and "nothing was run" in result.stderr, result.output
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["not_run"]


def test_a_run_whose_noisy_steps_a_budget_planned_passes(tmp_path: Path) -> None:
    """Its plan names the noise of steps after the channel that shows them."""
    folder = tmp_path / "run"
    stepped = [*(one if one != "distributed_dp" else "masked" for one in RUN), "--unit", "node"]
    stepped += ["--set", "training.epochs=1"]
    stepped += ["--set", "steps.rate=0.1", "--set", "steps.steps=1"]
    done = CliRunner().invoke(main, [*stepped, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    result, found = audit(folder)
    assert result.exit_code == 0 and outcomes(found)["ledger"] == "passed", result.output


def test_a_run_that_was_stopped_within_an_exchange_and_resumed_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients had charged for replies that nobody noted, and its exchange numbers leave some out."""
    folder, opened = tmp_path / "run", Courier._opened

    def stop(self: Courier, request: Any, *rest: Any) -> Any:
        if request.round == 2 and request.channel == "update" and request.step == "answer":
            raise KeyboardInterrupt
        return opened(self, request, *rest)

    masked = [
        one if one != "distributed_dp" else "masked"
        for one in RUN
        if one not in ("--epsilon", "8", "--unit", "client")
    ]
    with monkeypatch.context() as patched:
        patched.setattr(Courier, "_opened", stop)
        assert CliRunner().invoke(main, [*masked, "--out", str(folder)]).exit_code == 130
    assert CliRunner().invoke(main, ["resume", str(folder), "--quiet"]).exit_code == 0
    (stopped,) = Transcript.load(folder / "transcript").stopped
    assert stopped.exchange > 0
    result, found = audit(folder)
    assert result.exit_code == 0 and outcomes(found)["ledger"] == "passed", result.output


def test_a_run_on_pooled_data_is_audited(tmp_path: Path) -> None:
    """Its one party is the pool, and an attack asks what is true of it."""
    out = tmp_path / "run"
    run = ["run", "--algorithm", "globsage", "--data", "synthetic-citation", "--policy", "plaintext"]
    run += ["--rounds", "2", "--set", "transcript=full", "--set", "training.hidden=[8,4]", "--quiet"]
    assert CliRunner().invoke(main, [*run, "--out", str(out)]).exit_code == 0
    result, found = audit(out)
    assert result.exit_code == 0, result.output
    assert not found["not_run"]
