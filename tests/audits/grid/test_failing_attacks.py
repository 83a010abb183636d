"""An attack that raises, or whose judge does, costs its own cell alone, whatever it raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secure_fedgraph.attacks import Guess, LabelCounts, LinkTeller, VocabularySupport
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.audits.grid.folders import audit_folder
from secure_fedgraph.audits.judgement import Judgement
from secure_fedgraph.audits.scoring import Score, ScoreKind
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute, run_result, write_json
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.storage import manifest

TWO = [LabelCounts, VocabularySupport]
SMALL = ["dataset.nodes=90", "dataset.features=24", "rounds=2", "training.hidden=[8,4]"]
ERRORS = [ValueError("odd"), BadInput("odd"), Refused("odd"), HostileMessage("odd")]


def experiment(*changes: str) -> Any:
    return load(None, {"data": "synthetic-citation"}, [*SMALL, *changes])


def raising(error: Exception) -> Any:
    def work(*_: Any) -> Any:
        raise error

    return work


def check(found: Audit, error: Exception) -> None:
    scored = {(cell["attack"][:2], cell["settings"]["aim"]) for cell in found.cells}
    assert (
        scored == {("a1", SINGLE_OWNERS), ("a1", RESIDUAL), ("a4", RESIDUAL)}
        and found.runs
        and found.conformance
    )
    (lost,) = found.not_run
    assert (lost["attack"], lost["adversary"], lost["failed"]) == ("a4-label-counts", "server", True)
    assert lost["reason"].startswith(f"a4-label-counts, {SINGLE_OWNERS}: {type(error).__name__}: odd")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_attack(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(LabelCounts, "run", raising(error))
    check(grid.audit(experiment(), ["plaintext"], TWO, [0], controls=()), error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_judge(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    residual = LabelCounts.residual

    def judged(cls: Any) -> Any:
        return raising(error)

    def left(self: Any, view: Any, knowledge: Any) -> Any:  # scored by the judge of the surfaces
        monkeypatch.setattr(LabelCounts, "judge", own)
        return residual(self, view, knowledge)

    own = LabelCounts.__dict__.get("judge", classmethod(lambda cls: None))
    monkeypatch.setattr(LabelCounts, "judge", classmethod(judged))
    monkeypatch.setattr(LabelCounts, "residual", left)
    check(grid.audit(experiment(), ["plaintext"], TWO, [0], controls=()), error)


def test_a_judgement_that_does_not_fit_its_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of a judgement is anybody's code too."""
    score = Score("odd", 0.5, 0.4, 0.6, {"guess": 0.1}, kind=ScoreKind.UNBOUNDED)

    def judge(*_: Any) -> Judgement:
        return Judgement(score, {"owner-0": None}, {})  # type: ignore[dict-item]

    monkeypatch.setattr(LabelCounts, "judge", classmethod(lambda cls: judge))
    found = grid.audit(experiment(), ["plaintext"], TWO, [0], controls=())
    assert {cell["attack"][:2] for cell in found.cells} == {"a1"}
    assert {row["attack"] for row in found.not_run} == {"a4-label-counts"}
    assert {row["attack"] for row in found.reconstructions} == {"a1-vocabulary-support"}


def test_an_attack_that_says_nothing_about_anybody_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No judge is asked for the mean over nobody."""
    monkeypatch.setattr(LabelCounts, "run", lambda *_: Guess("label shares", {}, {}, 3))
    found = grid.audit(experiment(), ["plaintext"], TWO, [0], controls=())
    assert not found.not_run
    (cell,) = (
        c for c in found.cells if (c["attack"], c["settings"]["aim"]) == ("a4-label-counts", SINGLE_OWNERS)
    )
    assert cell["outcome"] == "blind"
    assert cell["reason"] == "a4-label-counts: the attack said nothing about anybody"


def test_an_attack_that_reads_no_message_leaves_conformance_something_to_read() -> None:
    noised = experiment("policy=local_dp", "protection.norm=1.0", "protection.multiplier=4.0")
    found = grid.audit(noised, ["local_dp"], [LinkTeller], [0], controls=())
    assert not found.not_run
    assert {row["outcome"] for row in found.conformance} and {c["outcome"] for c in found.cells} == {"score"}


def test_an_attack_on_a_finished_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = experiment("policy=plaintext", "transcript=full")
    write_json(tmp_path / "result.json", run_result(execute(chosen, tmp_path), chosen))
    manifest.write(tmp_path)
    monkeypatch.setattr(LabelCounts, "run", raising(BadInput("odd")))
    check(audit_folder(tmp_path, TWO)[1], BadInput("odd"))
