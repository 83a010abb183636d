"""The audit of a finished run's folder, where a budget randomised what clients hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.grid.folders import audit_folder
from secure_fedgraph.cli.main import main

SMALL = ["--set", "dataset.nodes=90", "--set", "dataset.features=24", "--set", "transcript=full"]
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
    made = CliRunner().invoke(main, ["run", *asked, *given, *SMALL, "--out", str(out)])
    assert made.exit_code == 0, made.output
    _, audit = audit_folder(out, [ATTACKS["d1-index-lists"]])
    failed = [row for row in audit.conformance if row["outcome"] == "failed"]
    assert not failed
    assert {"randomised data"} <= {row["check"] for row in audit.conformance if row["outcome"] == "passed"}
    assert [row["outcome"] for row in audit.empirical] == ["holds"]
