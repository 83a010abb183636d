"""An attack that reads what a policy hides is a broken claim: exit status 4."""

from __future__ import annotations

import json

from click.testing import CliRunner

from secure_fedgraph.audits.grid import report
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.cli import auditing
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BrokenClaim
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS

SMALL = [
    "audit", "--data", "synthetic-citation", "--set", "dataset.nodes=90", "--set", "dataset.features=24",
    "--rounds", "2", "--attack", "a1", "--quiet", "--overwrite",
]  # fmt: skip


def found(aim, domain, leaks=True, adversary="server"):
    cell = {
        "attack": "a1-vocabulary-support", "channel": "update", "policy": "masked", "seed": 0,
        "adversary": adversary, "leaks": leaks, "settings": {"aim": aim, "variant": "as configured"},
    }  # fmt: skip
    result = {"seed": 0, "channels": [{"name": "update", "domain": domain}]}
    run = {"policy": "masked", "variant": "as configured", "result": result}
    return Audit(cells=[cell], runs=[run])


def test_only_a_server_that_reads_single_owners_under_masks_breaks_the_claim():
    assert len(report.broken(found(SINGLE_OWNERS, "masked"))) == 1
    assert len(report.broken(found(SINGLE_OWNERS, "cipher"))) == 1
    assert report.broken(found(SINGLE_OWNERS, "real")) == []
    assert report.broken(found(RESIDUAL, "masked")) == []
    assert report.broken(found(SINGLE_OWNERS, "masked", leaks=False)) == []
    assert report.broken(found(SINGLE_OWNERS, "masked", adversary="client")) == []


def test_a_leak_that_may_be_chance_accuses_nobody():
    """At 2.5 % a cell, a grid of hundreds would accuse right code every time."""
    made = found(SINGLE_OWNERS, "masked")
    made.cells[0] |= {"baseline": 0.5, "low": 0.51, "surely_at_least": 0.4}
    assert report.broken(made) == []
    made.cells[0]["surely_at_least"] = 0.6
    assert len(report.broken(made)) == 1


def test_what_sums_give_away_by_subtraction_is_declared():
    """F1 reads an owner from two sums that differ in it: the channel says so, where it may happen."""
    made = found(SINGLE_OWNERS, "masked")
    made.cells[0]["attack"] = "f1-cohort-differencing"
    assert len(report.broken(made)) == 1
    made.runs[0]["result"]["channels"][0]["excess"] = ["two sums over cohorts that differ in one client ..."]
    assert report.broken(made) == []
    made.cells[0]["attack"] = "a1-vocabulary-support"  # this one reads uploads, which nothing declares
    assert len(report.broken(made)) == 1


def test_an_honest_audit_exits_0(tmp_path):
    done = CliRunner().invoke(main, [*SMALL, "--policy", "masked", "--out", str(tmp_path / "a")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "a" / "audit.json").read_text())["broken"] == []


def test_a_leak_where_nothing_should_be_readable_exits_4(tmp_path, monkeypatch):
    """The honest attack is blind here, so its cell is made the hit that a broken carrier would give."""
    real = auditing.audit_result

    def read_words(found, *rest):
        for cell in found.cells:
            if cell["settings"]["aim"] == SINGLE_OWNERS:
                cell.update(leaks=True, outcome="score", score=1.0, verdict="exact", metric="f1",
                            low=1.0, high=1.0, baseline=0.5, baselines={"every word": 0.5})  # fmt: skip
        return real(found, *rest)

    monkeypatch.setattr(auditing, "audit_result", read_words)
    done = CliRunner().invoke(main, [*SMALL, "--policy", "masked", "--out", str(tmp_path / "b")])
    assert done.exit_code == BrokenClaim.exit_status, done.output
    assert (tmp_path / "b" / "audit.json").exists()
