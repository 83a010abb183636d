"""What is asked of an audit in Python is refused before any run, as on the command line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.attacks import LabelCounts, VocabularySupport
from secure_fedgraph.audits.grid import folders, grid
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.core.errors import BadInput

SMALL = sfg.Experiment(data="synthetic-citation", rounds=1, dataset={"nodes": 90, "features": 16})
ASKED: dict[str, Any] = {
    "experiment": SMALL,
    "policies": ["plaintext"],
    "attacks": [LabelCounts],
    "seeds": [0],
    "controls": (),
}


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(self: Any) -> None:
        pytest.fail("work began")

    monkeypatch.setattr(grid._GridRunner, "run", begin)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("experiment", {"data": "cora"}),
        ("experiment", [SMALL, "cora"]),
        ("experiment", []),
        ("experiment", SMALL.model_copy(update={"algorithm": "fedsag"})),
        ("policies", "masked"),
        ("policies", ()),
        ("policies", ["plaintext", "maskd"]),
        ("policies", [sfg.policies.masked()]),
        ("attacks", "a4"),
        ("attacks", []),
        ("attacks", ["a4-label-counts"]),
        ("attacks", LabelCounts),
        ("seeds", 3),
        ("seeds", ()),
        ("seeds", "0"),
        ("seeds", [-1]),
        ("seeds", [0.0]),
        ("out", 5),
        ("out", Path(__file__)),
        ("progress", "yes"),
        ("say", None),
        ("adversary", "sever"),
        ("adversary", ["server"]),
        ("controls", ["nosuch"]),
        ("controls", LabelCounts.controls[0].name),
        ("effort", "long"),
        ("effort", -1),
        ("workers", 0),
        ("workers", "two"),
        ("budget", -1),
        ("budget", math.nan),
        ("budget", "short"),
        ("probes", "no"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(nothing_runs: None, key: str, value: Any) -> None:
    with pytest.raises(BadInput) as refusal:
        sfg.audit(**{**ASKED, key: value})
    named = {"experiment": "fedsag", "policies": "maskd", "controls": "nosuch", "adversary": "sever"}
    assert key in str(refusal.value) or named[key] in str(refusal.value)


@pytest.mark.parametrize(
    ("attacks", "adversary", "effort"),
    [(["a4-label-counts"], None, None), ([LabelCounts], "sever", None), ([LabelCounts], None, "long")],
)
def test_a_finished_run_is_not_read_for_what_cannot_be(
    tmp_path: Path, attacks: Any, adversary: Any, effort: Any
) -> None:
    with pytest.raises(BadInput) as refusal:
        folders.audit_folder(str(tmp_path / "no run"), attacks, adversary, effort)
    assert "no run" not in str(refusal.value)


def test_a_folder_may_be_a_word_and_every_thing_counts_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[grid._GridRunner] = []
    monkeypatch.setattr(grid._GridRunner, "run", lambda self: calls.append(self))
    monkeypatch.setattr(grid._GridRunner, "audit", lambda *_: Audit())
    twice = {"policies": ["plaintext"] * 2, "seeds": iter([0, 0]), "attacks": [VocabularySupport] * 2}
    sfg.audit(**{**ASKED, **twice, "out": str(tmp_path)})
    assert calls[0].out == tmp_path
    assert [group.variant.attacks for group in calls[0].wanted] == [(VocabularySupport,)]
