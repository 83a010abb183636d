"""Epsilon, measured, as rows of an audit: right noise holds, its power is told, broken noise exits 4."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from secure_fedgraph.audits.empirical_dp import empirical
from secure_fedgraph.audits.empirical_dp.empirical import BROKEN, HOLDS, UNAUDITED, WEAK, empirical_rows
from secure_fedgraph.audits.empirical_dp.worst_cases import pooled_parts
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.protection import gaussian as clip
from secure_fedgraph.core.protection.discrete_gaussian import DiscreteGaussian
from secure_fedgraph.core.protection.rounded_gaussian import RoundedGaussian
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.privacy import dp_sgd
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels

BASE: dict[str, Any] = {
    "algorithm": "fedavg",
    "data": "synthetic-citation",
    "dataset": {"nodes": 90, "features": 16},
    "clients": 3,
    "rounds": 2,
    "training": {"hidden": [8], "fanout": [2], "crowd": 10},
    "epsilon": 8.0,
    "unit": "client",
}
CASES: dict[str, dict[str, Any]] = {
    # what is audited -> how it is run
    "channel update": {"policy": "local_dp"},
    "channel update, in shares": {"policy": "distributed_dp"},
    "channel update, by the server": {"policy": "central_dp", "against": "outsider"},
    "noisy steps": {"policy": "masked", "unit": "node"},
    "links randomised": {"policy": "plaintext", "unit": "edge", "epsilon": 4.0},
    "labels randomised": {"policy": "plaintext", "unit": "label", "epsilon": 4.0},
    "features randomised": {"policy": "plaintext", "unit": "feature", "epsilon": 4.0},
}


def made(**more: Any):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return execute(load(None, {**BASE, **more}, ()), None)


@pytest.mark.parametrize("name", CASES)
def test_a_right_run_holds_and_its_row_says_how_much_was_tried(name):
    (row,) = empirical_rows(made(**CASES[name]), 1e-5)
    assert row["noise"] == name.split(",")[0]
    assert row["outcome"] == HOLDS, row
    assert 0.4 * row["claim"] < row["lower"] <= row["claim"] < row["ceiling"]
    assert row["trials"] >= 400 and row["unseen"] and row["confidence"] == 1 - 1e-4
    assert row["reader"] == ("outsider" if "server" in name else "server")


def test_all_sums_of_a_run_are_measured_together(monkeypatch):
    monkeypatch.setattr(empirical, "SECONDS", 0.5)
    run = made(algorithm="fedridge", policy="distributed_dp", unit="node", training={})
    row = next(row for row in empirical_rows(run, 1e-5, trials=2_000) if row["noise"] == "all sums")
    assert row["outcome"] == HOLDS and row["of"] == f"all {len(run.charges) // 3} sums of the run"
    assert row["claim"] == pytest.approx(float(run.privacy()["node"]["epsilon"]), rel=1e-3)
    assert 0.4 * row["claim"] < row["lower"] <= row["claim"] < row["ceiling"]


def test_without_noise_there_is_nothing_to_audit():
    assert empirical_rows(made(policy="masked", epsilon=None), 1e-5) == []


def test_steps_that_claim_nothing_are_no_row():
    run = made(policy="masked", unit="client", epsilon=None, steps={"noise": 0.01})
    assert empirical_rows(run, 1e-5) == []


def test_rows_that_cannot_be_made_cost_no_cell(monkeypatch, tmp_path):
    def fails(*_):
        raise ZeroDivisionError("no")

    monkeypatch.setattr(empirical, "empirical_rows", fails)
    done = TestCommand().run(tmp_path / "c")
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "c" / "audit.json").read_text())
    assert result["cells"] and result["empirical"][0]["outcome"] == UNAUDITED


def test_too_few_trials_are_no_verdict():
    run = made(policy="plaintext", unit="label", epsilon=4.0)
    (row,) = empirical_rows(run, 1e-5, trials=40)
    assert row["outcome"] == WEAK and row["ceiling"] < row["claim"]


def test_what_has_no_worst_case_is_named(monkeypatch):
    monkeypatch.setattr(empirical, "client_rows", lambda bound, norm, answering: pooled_parts(bound))
    (row,) = empirical_rows(made(policy="local_dp"), 1e-5)
    assert row["outcome"] == UNAUDITED and "declares no sums over units" in row["reason"]
    assert "lower" not in row


# --- mutants


def _half(kind):
    def mutant(patch):
        draw = kind.draw
        patch.setattr(kind, "draw", lambda self, size: draw(self, size) // 2)

    return mutant


def _no_clip(patch):
    patch.setattr(clip.Clip, "apply", lambda self, matrix, scope: matrix)


def _steps_not_clipped(patch):
    patch.setattr(dp_sgd, "factors", lambda norms, clip: np.ones_like(norms))


def _true_labels(patch):
    patch.setattr(RandomisedLabels, "randomized", lambda self, labels, classes: labels)


MUTANTS = {
    "half of the client's noise": (_half(RoundedGaussian), "channel update"),
    "half of each share": (_half(DiscreteGaussian), "channel update, in shares"),
    "no clip": (_no_clip, "channel update"),
    "gradients are not clipped": (_steps_not_clipped, "noisy steps"),
    "labels are told": (_true_labels, "labels randomised"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    wrong, case = MUTANTS[name]
    run = made(**CASES[case])
    wrong(monkeypatch)
    (row,) = empirical_rows(run, 1e-5)
    assert row["outcome"] == BROKEN, row


class TestCommand:
    def run(self, out) -> Any:
        words = """audit --data synthetic-citation --set dataset.nodes=90 --set dataset.features=16 --rounds 1
            --algorithm fedavg --policy local_dp --epsilon 8 --unit client --attack a1
            --quiet --out"""
        return CliRunner().invoke(main, [*words.split(), str(out)])

    def test_a_right_one_exits_0_and_its_page_says_so(self, tmp_path):
        done = self.run(tmp_path / "a")
        assert done.exit_code == 0, done.output
        (row,) = json.loads((tmp_path / "a" / "audit.json").read_text())["empirical"]
        assert row["policy"] == "local_dp" and row["outcome"] == HOLDS
        page = (tmp_path / "a" / "report.html").read_text()
        assert "1 noise under audit: no claim is refuted." in page
        assert "What such an audit cannot see" in page

    def test_a_refuted_claim_exits_4(self, tmp_path, monkeypatch):
        _half(RoundedGaussian)(monkeypatch)
        done = self.run(tmp_path / "b")
        assert done.exit_code == 4, done.output
        result = json.loads((tmp_path / "b" / "audit.json").read_text())
        assert any("trials show at least" in sentence for sentence in result["broken"])
        assert "1 claim refuted" in (tmp_path / "b" / "report.html").read_text()
