"""``--control`` and ``--effort``: what of an audit is run, for how long, and what a stopped search says."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from result_parts import cells

import secure_fedgraph as sfg
from secure_fedgraph.attacks import GeneratorBatch, GeneratorSingle, Knowledge, LabelCounts, VocabularySupport
from secure_fedgraph.attacks import neighgen as module
from secure_fedgraph.attacks.sparse_rows import SEARCHES
from secure_fedgraph.audits.grid import cells as found_cells
from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.audits.grid.attacked import KeepReadChannels
from secure_fedgraph.audits.grid.report import audit_result
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import execute, write_json
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.report.first_screens.readers import read_under
from secure_fedgraph.report.page import write_report

SMALL: dict[str, Any] = {
    "algorithm": "fedsage+",
    "data": "synthetic-citation",
    "dataset": {"nodes": 120, "features": 80},
    "rounds": 1,
    "training": {
        "generator_hidden": [16, 256],
        "hidden": [8, 4],
        "encoder": [8, 16],
        "generator_epochs": 2,
        "federated_epochs": 1,
        "minimum_batch": 1,
        "exchange_batch": 4,
    },
}
FLAGS = ["--algorithm", "fedsage+", "--data", "synthetic-citation", "--rounds", "1"]
FLAGS += ["--set", "dataset.nodes=120", "--set", "dataset.features=80"]
Found = tuple[np.ndarray, np.ndarray, bool]
NOTHING = np.zeros((0, 5, 80))
for key, value in SMALL["training"].items():
    FLAGS += ["--set", f"training.{key}={json.dumps(value)}"]


@pytest.fixture(autouse=True)
def nothing_solved_before() -> None:
    module._SOLVED.clear()


@pytest.fixture(scope="module")
def run() -> sfg.Run:
    return execute(experiment("plaintext"), None, keep=KeepReadChannels([GeneratorBatch]))


@pytest.fixture
def finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose every turn comes back with empty hands, as that of a batch too wide for it."""
    for name in SEARCHES:
        monkeypatch.setitem(
            SEARCHES, name, lambda basis, found, generator: basis.new_zeros(0, basis.shape[1])
        )


def experiment(policy: str, *changes: str) -> Experiment:
    return load(None, {**SMALL, "policy": policy}, changes)


def audit(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments])


def refused(result: Result, words: str) -> None:
    assert result.exit_code == 2, result.output
    assert re.search(words, result.stderr), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


# Which controls


def test_only_the_named_controls_are_run() -> None:
    chosen = experiment("plaintext")
    names = [v.name for v in choices.variants(chosen, [GeneratorBatch])]
    assert names == ["as configured", *(f"exchange batch {n}" for n in (1, 8, 32, 64))]
    named = choices.controls([GeneratorBatch], ["exchange batch 8", "exchange batch 8"])
    assert named == ("exchange batch 8",)
    assert [v.name for v in choices.variants(chosen, [GeneratorBatch], named)] == ["as configured", *named]
    assert choices.controls([GeneratorBatch], []) is None


def test_an_unknown_control_names_the_known_ones() -> None:
    attacks = [GeneratorSingle, GeneratorBatch]
    with pytest.raises(BadInput, match="'exchange batch 8'") as refusal:
        choices.controls(attacks, ["exchange batch 88"])
    assert all(f"exchange batch {n}" in str(refusal.value) for n in (1, 8, 32, 64))
    with pytest.raises(BadInput, match="declare none"):
        choices.controls([VocabularySupport], ["exchange batch 8"])


# How long a search


@pytest.mark.parametrize("effort", [0.0, -1.0, math.nan, math.inf])
def test_an_effort_that_is_no_limit_is_refused(effort: float) -> None:
    with pytest.raises(BadInput, match="give processor seconds above 0"):
        GeneratorBatch(effort)


def test_the_search_gets_the_effort_and_only_a_stopped_one_says_so(
    run: sfg.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    complete, view = False, run.transcript.view("server")

    def batch(*arguments: Any, seconds: float, **others: Any) -> Found:
        given.append(seconds)
        return NOTHING, NOTHING, complete

    monkeypatch.setattr(module, "batch", batch)
    for effort in (None, 20.0, 20.0, 900.0):  # two owners each; the same effort again is remembered
        seconds = effort or GeneratorBatch.seconds
        guess = GeneratorBatch(effort).run(view, Knowledge())
        assert guess.stopped == dict.fromkeys(guess.targets, seconds)
    assert given == [GeneratorBatch.seconds] * 2 + [20.0] * 2 + [900.0] * 2
    complete = True
    assert GeneratorBatch(30.0).run(view, Knowledge()).stopped == {}


@pytest.mark.usefixtures("finds_nothing")
@pytest.mark.parametrize("effort", [0.05, None])
def test_a_search_ends_at_its_effort_or_its_own_limit_with_what_it_has(
    effort: float | None, run: sfg.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if effort is None:
        monkeypatch.setattr(GeneratorBatch, "patience", 1e9)
        monkeypatch.setattr(GeneratorBatch, "seconds", 0.05)
    guess = GeneratorBatch(effort).run(run.transcript.view("server"), Knowledge())
    assert all(np.isnan(rows).all() and len(rows) for rows in guess.values.values())
    assert guess.stopped == dict.fromkeys(guess.targets, 0.05)


def test_an_effort_stands_in_for_the_patience_too(run: sfg.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def batch(*arguments: Any, progress: Any, **others: Any) -> Found:
        progress(0, 4)
        return NOTHING, NOTHING, True

    monkeypatch.setattr(GeneratorBatch, "patience", -1.0)
    monkeypatch.setattr(module, "batch", batch)
    view = run.transcript.view("server")
    assert set(GeneratorBatch().run(view, Knowledge()).stopped.values()) == {-1.0}  # given up
    assert GeneratorBatch(900.0).run(view, Knowledge()).stopped == {}


def test_an_attack_without_a_search_ignores_the_effort(run: sfg.Run) -> None:
    view = run.transcript.view("server")
    slow, fast = (GeneratorSingle(effort).run(view, Knowledge()) for effort in (None, 1e-9))
    assert slow.stopped == fast.stopped == {}
    assert all(np.array_equal(slow.values[t], fast.values[t], equal_nan=True) for t in slow.targets)
    assert not any(kind.searches for kind in (GeneratorSingle, VocabularySupport, LabelCounts))


# What the reader is told


@pytest.mark.usefixtures("finds_nothing")
def test_a_stopped_search_is_told_in_the_cell_and_on_the_page(tmp_path: Path) -> None:
    attacks, chosen = [VocabularySupport, GeneratorBatch], experiment("plaintext")
    controls = choices.controls(attacks, ["exchange batch 1"])
    found = grid.audit(chosen, ["plaintext"], attacks, [0], None, controls=controls, effort=0.05)
    told = "search stopped after 0.05 s: a lower bound"
    cells = {
        (c["attack"][:2], c["adversary"], c["settings"]["aim"], c["settings"]["variant"]): c
        for c in found.cells
    }
    stopped = cells["c2", "client", RESIDUAL, "as configured"]
    # an owner asks, and the two others answer
    assert stopped["verdict"] == f"no better than a trivial guess; {told}, about several owners together"
    assert stopped["reason"] == f"c2-neighgen-batch: {told}"
    assert (stopped["details"]["searches_stopped"], stopped["details"]["stopped_after"]) == (1, 0.05)
    exact = cells["c2", "server", SINGLE_OWNERS, "exchange batch 1"]  # of one node there is nothing to search
    assert (exact["score"], exact["verdict"], exact["reason"]) == (1.0, "exact", "")
    assert "searches_stopped" not in exact["details"]

    result = audit_result(found, chosen, ["plaintext"], [0], 1.0, "")
    assert (result["controls"], result["effort"]) == (["exchange batch 1"], 0.05)
    assert "where a search was stopped (" in result["verdict"]
    write_json(tmp_path / "audit.json", result)
    page = " ".join(re.sub(r"<[^>]*>", " ", write_report(tmp_path).read_text()).split())
    assert told in page
    assert "controls = exchange batch 1" in page and "effort = 0.05" in page


def test_a_stopped_search_is_no_all_clear() -> None:
    cell = {
        "policy": "masked",
        "outcome": "score",
        "score": 0.0,
        "leaks": False,
        "attack": "c2-neighgen-batch",
    }
    cell |= {"settings": {"aim": RESIDUAL, "variant": "as configured"}, "verdict": "no better"}
    (through,) = read_under(cells([cell]), ["masked"])
    assert (through.state, through.short) == ("nothing", "nothing was read")
    details = {"searches_stopped": 1, "stopped_after": 20.0}
    (stopped,) = read_under(cells([{**cell, "details": details}]), ["masked"])
    assert (stopped.state, stopped.short) == ("scored", "nothing was read for certain")
    assert "too little time to tell" in stopped.outcome()


def test_part_of_the_searches_is_told_as_part() -> None:
    guess = module._guess(
        {"a": module.Solved(np.zeros((0, 2)), 3.0), "b": module.Solved(np.zeros((0, 2)))},
        {"a": (), "b": ()},
        2,
    )
    assert found_cells.stopped(guess) == "1 of 2 searches stopped after 3 s: a lower bound"


def test_without_limits_nothing_is_told(run: sfg.Run) -> None:
    found = grid.audit(experiment("plaintext"), ["plaintext"], [LabelCounts], [0])
    result = audit_result(found, experiment("plaintext"), ["plaintext"], [0], 1.0, "")
    assert (result["controls"], result["effort"]) == (None, None)
    assert "stopped" not in result["verdict"]


# The command


def test_the_command_hands_both_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    torch.manual_seed(0)
    done = audit(*FLAGS, "--policy", "strictest", "--attack", "c2-neighgen-batch", "--adversary", "client",
                 "--control", "exchange batch 8, exchange batch 1", "--control", "exchange batch 8",
                 "--effort", "30", "--out", str(out))  # fmt: skip
    assert done.exit_code == 0, done.output
    result = json.loads((out / "audit.json").read_text())
    assert (result["controls"], result["effort"]) == (["exchange batch 8", "exchange batch 1"], 30)
    assert [r["variant"] for r in result["runs"]] == ["as configured", "exchange batch 1", "exchange batch 8"]
    left = [c for c in result["cells"] if c["settings"]["aim"] == RESIDUAL]
    assert [c["leaks"] for c in left] == [True] * 3  # the asking owner's residual, masked and sealed


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--policy", ""], "--policy '' leaves a name empty"),
        (["--policy", "plaintext,"], "--policy 'plaintext,' leaves a name empty"),
        (["--attack", ""], "--attack '' leaves a name empty"),
        (["--attack", "a1,,a4"], "--attack 'a1,,a4' leaves a name empty"),
        (["--control", ""], "--control '' leaves a name empty"),
        (
            ["--attack", "c2", "--control", "exchange batch 2"],
            "unknown control .*Known: exchange batch 1, exch",
        ),
        (["--attack", "a1", "--control", "exchange batch 8"], "the chosen attacks declare none"),
        (["--effort", "0"], "effort 0 is no limit: give processor seconds above 0"),
    ],
)
def test_bad_names_and_numbers_exit_2_and_take_nothing_away(
    flags: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "audit.json").write_text("{}")
    refused(audit(*FLAGS, *flags, "--out", str(tmp_path), "--overwrite"), words)
    assert (tmp_path / "audit.json").read_text() == "{}"
    assert len(list(tmp_path.iterdir())) == 1
