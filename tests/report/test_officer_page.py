"""The page for who signs: nothing unbounded, exact or untried is left out, and the run's key signs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from secure_fedgraph.cli.main import main
from secure_fedgraph.storage import manifest

CLAIM = {"epsilon": "inf", "delta": 1e-5, "against": "server", "relation": "zero-out", "accountant": "none"}
RUN = {
    "schema": "secure-fedgraph/run/1", "config": {"algorithm": "fedsage", "policy": "masked", "clients": 3},
    "accuracy": {"global": 0.81}, "weights": "ab", "released_exactly": ["rounds: scores of every round"],
    "privacy": {"node": {**CLAIM, "reason": "no noise is added"}},
    "channels": [{"name": "<b>update", "reveal": "sum", "unit": "client", "to": "server", "policy": "masked",
                  "domain": "masked", "excess": ["two sums differ by one owner"]}],
}  # fmt: skip
AUDIT = {
    "schema": "secure-fedgraph/audit/1", "config": {}, "policies": ["masked"], "verdict": "",
    "broken": ["Noise is cut"],
    "cells": [{"policy": "masked", "attack": "a4-label-counts", "adversary": "server", "outcome": "score",
               "score": 1.0, "baseline": 0.2, "leaks": True, "subject": "labels"}],
}  # fmt: skip


def officer(folder: Path, **written: Any) -> Result:
    for name, value in written.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    manifest.write(folder)
    return CliRunner().invoke(main, ["report", str(folder), "--officer"])


def audit_of(weights: str) -> dict[str, Any]:
    return {
        **AUDIT,
        "runs": [{"variant": "as configured", "policy": "masked", "result": {**RUN, "weights": weights}}],
    }


def test_what_is_open_stands_on_the_page_and_the_key_signs_it(tmp_path: Path) -> None:
    (tmp_path / "disputes" / "00003-update").mkdir(parents=True)
    (tmp_path / "disputes" / "00003-update" / "request.json").touch()
    assert officer(tmp_path, result=RUN).exit_code == 0
    page = (tmp_path / "officer.html").read_text()
    said = "one node: no bound|no noise is added|covered by no ε: rounds|No budget was set|no compliance"
    for told in (*said.split("|"), "two sums differ by one owner", "No attack was run", "round 3 by itself"):
        assert told in page
    assert "<b>update" not in page and manifest.check(tmp_path)["public"] in page
    assert "officer.html" in manifest.check(tmp_path)["files"]
    (tmp_path / "officer.html").write_text(page.replace("no bound", "ε = 1"))
    assert CliRunner().invoke(main, ["report", str(tmp_path)]).exit_code == 2


def test_attacks_and_broken_claims_are_those_of_this_run(tmp_path: Path) -> None:
    assert officer(tmp_path, result=RUN, audit=audit_of("ab")).exit_code == 0
    page = (tmp_path / "officer.html").read_text()
    assert "read single owners’ labels" in page and "A claim is broken: Noise is cut" in page
    assert officer(tmp_path, audit=audit_of("cd")).exit_code == 2


def test_a_folder_that_cannot_be_signed_gets_no_page(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(RUN))
    manifest.write(tmp_path)
    (tmp_path / "run.key").unlink()
    done = CliRunner().invoke(main, ["report", str(tmp_path), "--officer"])
    assert done.exit_code == 2 and "run.key" in done.output and not (tmp_path / "officer.html").exists()
