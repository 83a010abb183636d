"""Groups of cells: keys that follow what decides them, order, estimates, budgets, and a second call."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from in_this_process import InThisProcess

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.attacks import ATTACKS, GradientLabels, LabelCounts, MashLabels, VocabularySupport
from secure_fedgraph.audits.grid import grid, planned_runs
from secure_fedgraph.audits.grid.choices import readers, variants
from secure_fedgraph.audits.grid.estimates import estimate, most_informative_first
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment import code_digest
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.pool import Failed, Pool, default_workers, tried
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS

SMALL = ["dataset.nodes=90", "dataset.features=24", "rounds=2", "training.hidden=[8,4]"]
FLAGS = ["--data", "synthetic-citation", *(f"--set={one}" for one in SMALL), "--attack", "a1", "--quiet"]


def experiment(*changes: str) -> Any:
    return load(None, {"data": "synthetic-citation"}, [*SMALL, *changes])


def wanted(policies: list[str], seeds: list[int], *changes: str) -> list[planned_runs.PlannedRun]:
    return grid.planned_runs([experiment(*changes)], policies, [VocabularySupport, LabelCounts], seeds)


def test_a_key_is_of_everything_that_decides_the_cells():
    first, again, other = wanted(["masked"], [0])[0], wanted(["masked"], [0])[0], wanted(["masked"], [1])[0]
    assert first.key == again.key
    changed = [
        other,
        wanted(["plaintext"], [0])[0],
        wanted(["masked"], [0], "training.batch=8")[0],
        grid.planned_runs([experiment()], ["masked"], [VocabularySupport], [0])[0],
        grid.planned_runs([experiment()], ["masked"], [VocabularySupport, LabelCounts], [0], effort=3.0)[0],
        wanted(["masked"], [0])[1],
    ]
    assert len({first.key, *(planned.key for planned in changed)}) == 1 + len(changed)


def test_a_key_follows_the_attacks_code(monkeypatch: pytest.MonkeyPatch):
    planned = wanted(["masked"], [0])[0]
    before = planned.key
    monkeypatch.setattr(planned_runs, "of_code", lambda kind, *rooms: "other")
    assert planned.key != before


def test_the_most_telling_go_first():
    found = [
        (g.chosen.policy, g.configured, g.chosen.seed)
        for g in most_informative_first(wanted(["masked", "plaintext"], [0, 1]))
    ]
    assert found[0] == ("plaintext", True, 0)
    assert found.index(("plaintext", True, 0)) < found.index(("masked", True, 0))
    assert found.index(("masked", True, 0)) < found.index(("plaintext", False, 0))
    assert found.index(("plaintext", False, 0)) < found.index(("masked", False, 0))
    assert found.index(("masked", False, 0)) < found.index(("plaintext", True, 1))


def test_algorithms_take_turns():
    several = [experiment(), experiment("algorithm=fedavg")]
    attacks = [VocabularySupport, LabelCounts]
    found = most_informative_first(grid.planned_runs(several, ["plaintext"], attacks, [0]))
    assert [g.chosen.algorithm for g in found[:2]] == ["fedsage", "fedavg"]


def test_the_estimate_is_of_what_is_left():
    assert estimate(2, [7.0, 9.0], 2)["sentence"] == "2 runs, about 8.0 s on 2 processes"
    assert "--budget-minutes 60" in estimate(1, [400_000.0], 2)["sentence"]


MADE = {"cells": [], "runs": [], "reconstructions": [], "conformance": [], "empirical": [], "seconds": 1.0}


def test_slow_runs_are_estimated_after_the_first(monkeypatch: pytest.MonkeyPatch):
    order: list[str] = []
    slow = {**MADE, "seconds": 100.0}
    monkeypatch.setattr(grid, "attacked", lambda planned, *_: order.append("run") or slow)
    monkeypatch.setattr(grid, "Pool", InThisProcess)
    monkeypatch.setattr(grid, "default_workers", lambda tasks: 1)
    grid.audit(experiment(), ["plaintext"], [VocabularySupport], [0, 1], workers=None, say=order.append)
    left = order.count("run") - 1
    assert order[0] == "run" and order[1].startswith(f"{left} runs, about ") and "1 process" in order[1]


def test_a_torn_cell_is_run_again(tmp_path: Path):
    first = grid.audit(experiment(), ["plaintext"], [VocabularySupport], [0], tmp_path)
    (file,) = (tmp_path / "cells").glob("*.json")
    whole = json.loads(file.read_text())
    spoilt = json.dumps({**whole, "cells": [{**whole["cells"][0], "score": math.nan}]})
    for damaged in (file.read_text()[:100], json.dumps({"schema": whole["schema"]}), "", spoilt):
        file.write_text(damaged)
        again = grid.audit(experiment(), ["plaintext"], [VocabularySupport], [0], tmp_path)
        assert not again.not_run and len(again.cells) == len(first.cells)
        assert set(json.loads(file.read_text())) == set(whole)


def test_a_key_follows_what_lies_beside_a_users_own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "beside_own.py").write_text("SCALE = 1.0\n")
    (tmp_path / "own_of_a_user.py").write_text(
        "from beside_own import SCALE\nfrom secure_fedgraph.algorithms.fedavg import FedAvg\n"
        "class Mine(FedAvg):\n    name = 'mine'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = experiment("algorithm=own_of_a_user:Mine")
    (planned, *_) = grid.planned_runs([mine], ["plaintext"], [VocabularySupport], [0])
    before = planned.key
    code_digest._of_file.cache_clear()
    assert planned.key == before
    (tmp_path / "beside_own.py").write_text("SCALE = 0.0\n")
    code_digest._of_file.cache_clear()
    assert planned.key != before


def test_a_second_call_takes_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = grid.audit(experiment(), ["plaintext", "masked"], [VocabularySupport], [0], tmp_path)
    files = sorted((tmp_path / "cells").glob("*.json"))
    assert len(files) == len(first.runs)
    files[0].unlink()
    runs = []
    real = grid.attacked
    monkeypatch.setattr(grid, "attacked", lambda planned, *_: runs.append(planned) or real(planned, tmp_path))
    second = grid.audit(experiment(), ["plaintext", "masked"], [VocabularySupport], [0], tmp_path)
    assert len(runs) == 1
    keys = ("policy", "adversary", "outcome", "score", "settings")
    assert [[c[k] for k in keys] for c in second.cells] == [[c[k] for k in keys] for c in first.cells]


def test_processes_find_what_one_finds(tmp_path: Path):
    alone = grid.audit(experiment(), ["plaintext", "masked"], [VocabularySupport], [0])
    beside = grid.audit(experiment(), ["plaintext", "masked"], [VocabularySupport], [0], tmp_path, workers=2)
    keys = ("policy", "adversary", "outcome", "score", "low", "settings")
    assert [[c[k] for k in keys] for c in beside.cells] == [[c[k] for k in keys] for c in alone.cells]
    assert len(list((tmp_path / "cells").glob("*.json"))) == len(beside.runs)


def left_out(chosen: sfg.Experiment, attacks: Any) -> list[tuple[str, str, str]]:
    """(attack, control, why it cannot be run)."""
    return [(a.id, v.name, v.why_not) for v in variants(chosen, attacks) if v.why_not for a in v.attacks]


def test_a_control_whose_settings_an_algorithm_lacks_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(grid, "attacked", lambda planned, *_: MADE)
    lacks, has = load(None, {"algorithm": "apfl", "data": "synthetic-citation"}, []), experiment()
    lost = grid.audit([lacks, has], ["plaintext", "masked"], [LabelCounts], [0, 1]).not_run
    assert {(c["policy"], c["seed"]) for c in lost} == {
        (p, s) for p in ("plaintext", "masked") for s in (0, 1)
    }
    assert {(c["algorithm"], c["attack"], c["adversary"], c["variant"]) for c in lost} == {
        ("apfl", "a4-label-counts", "server", "one full step")
    }
    reason = "the control sets training.optimizer and training.head, which apfl does not have"
    assert all(c["reason"] == reason and not c["failed"] for c in lost)


def test_a_control_may_run_a_variant_of_the_algorithm_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = load(None, {"algorithm": "fedego", "training": {"gamma": 0.3}}, [])
    monkeypatch.setitem(ALGORITHMS.own, "mine", type("Mine", (sfg.FedEgo,), {"name": "mine"}))
    mine = load(None, {"algorithm": "mine"}, [])
    configured, control = grid.planned_runs([paper], ["plaintext"], [MashLabels], [0])
    assert configured.experiment.algorithm == "fedego"
    assert control.experiment.algorithm == "fedego-released"
    settings = control.experiment.make_algorithm().settings.model_dump()
    assert settings["batching"] == "released" and settings["gamma"] == 0.3  # and what was chosen
    ((_, name, reason),) = left_out(mine, [MashLabels])
    assert name == control.variant.name and "no variant of mine" in reason
    assert left_out(paper, [MashLabels]) == []


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("glasu", "glasu-one-label-holder"),
        ("glasu-one-label-holder", "glasu-one-label-holder"),
        ("fedbcd", "fedbcd-one-label-holder"),
        ("fedbcd-one-label-holder", "fedbcd-one-label-holder"),
        ("glasu-simulated", None),
    ],
)
def test_a_control_of_one_label_holder_runs_the_variant_of_what_is_audited(name: str, runs: str | None):
    chosen = load(None, {"algorithm": name, "data": "synthetic-citation"}, [])
    controls = [
        v for v in variants(chosen, [GradientLabels]) if v.name == "labels at one owner" and not v.why_not
    ]
    who = ("server",)
    assert [planned_runs.PlannedRun(chosen, one, who).experiment.algorithm for one in controls] == (
        [runs] if runs else []
    )
    assert bool(left_out(chosen, [GradientLabels])) == (runs is None)


def test_a_budgets_form_is_attacked_by_who_reads_it_and_in_no_setting_that_it_has_not():
    asked = {"algorithm": "fedsage", "data": "synthetic-citation", "unit": "node", "policy": "masked"}
    plain, private = (load(None, {**asked, **more}, []) for more in ({}, {"epsilon": 4.0}))
    chosen = readers(private, ATTACKS.values())
    names = {attack.id for attack in chosen}
    assert names >= {attack.id for attack in readers(plain, ATTACKS.values())}  # named as blind
    assert names >= {"c7-summed-members", "g3-node-membership"} and "d8-model-completion" not in names
    assert [v.name for v in variants(private, chosen) if not v.why_not] == ["as configured"]
    assert len(variants(plain, chosen)) > 10
    reasons = {attack: reason for attack, _, reason in left_out(private, chosen)}
    assert "fedsage-steps" in reasons["g3-node-membership"] and "a4-label-counts" not in reasons


def test_cells_of_other_judges_are_not_these(monkeypatch: pytest.MonkeyPatch):
    one = wanted(["plaintext"], [0])[0]
    before = one.key
    monkeypatch.setattr(planned_runs, "of_rooms", lambda *rooms: "other")
    assert one.key != before


def test_what_a_budget_leaves_out_is_named(tmp_path: Path):
    found = grid.audit(
        experiment(), ["plaintext"], [VocabularySupport], [0], tmp_path, workers=1, budget=0.01
    )
    assert not found.cells and {c["attack"] for c in found.not_run} == {"a1-vocabulary-support"}
    assert all(c["reason"] and not c["failed"] for c in found.not_run)


def test_a_run_that_cannot_be_is_named_and_the_others_go_on(tmp_path: Path):
    several = [experiment(), experiment("algorithm=fedavg", "split.delta=-1")]
    found = grid.audit(several, ["plaintext"], [VocabularySupport], [0], tmp_path)
    assert {c["algorithm"] for c in found.cells} == {"fedsage"}
    assert {c["algorithm"] for c in found.not_run} == {"fedavg"}
    with pytest.raises(BadInput):
        grid.audit(several[1:], ["plaintext"], [VocabularySupport], [0])


def test_a_mistake_in_an_attack_is_no_result(monkeypatch: pytest.MonkeyPatch):
    def wrong(self: Any, view: Any, knowledge: Any) -> Any:
        raise KeyError("oops")

    monkeypatch.setattr(VocabularySupport, "run", wrong)
    several = [experiment(), experiment("algorithm=local")]  # local has no channel that it reads
    found = grid.audit(several, ["plaintext"], [VocabularySupport], [0])
    assert found.not_run and all(c["failed"] and "KeyError: 'oops'" in c["reason"] for c in found.not_run)


def test_an_attack_that_gives_no_guess_costs_its_own_cell_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LabelCounts, "run", lambda self, view, knowledge: None)
    attacks = [LabelCounts, VocabularySupport]
    found = grid.audit(experiment(), ["plaintext"], attacks, [0], tmp_path, controls=())
    scored = {(cell["attack"][:2], cell["settings"]["aim"]) for cell in found.cells}
    assert scored == {("a1", SINGLE_OWNERS), ("a1", RESIDUAL), ("a4", RESIDUAL)} and found.conformance
    (lost,) = found.not_run
    assert lost["attack"] == "a4-label-counts" and lost["failed"]
    assert "a4-label-counts" in lost["reason"] and "None" in lost["reason"]
    assert not list(tmp_path.glob("cells/*"))  # a later call tries it again


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_pool_stops_at_the_deadline_and_survives_a_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("types", "json", "socket", "pickle"):  # a user's own, which no process takes for Python's
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with Pool(2) as pool:
        pool.start("works", _sleep, 0.0)
        assert pool.finished() == [("works", "slept")]
        pool.start("dies", _end)
        ((name, made),) = pool.finished()
        assert name == "dies" and isinstance(made, Failed) and made.unforeseen and "status -9" in made.reason
        pool.start("late", _sleep, 60.0)
        ((name, made),) = pool.finished(time.monotonic() + 0.2)
        assert name == "late" and made.stopped and not pool.working
    assert "PYTHONSAFEPATH" not in os.environ
    assert not multiprocessing.active_children()


def test_workers_fit_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("secure_fedgraph.experiment.pool.free_memory", lambda: 5_000_000_000)
    assert default_workers(9) == 1
    monkeypatch.setattr("secure_fedgraph.experiment.pool.free_memory", lambda: 50_000_000_000)
    assert default_workers(9) == min(2, os.cpu_count() or 1) and default_workers(1) == 1


def test_an_error_has_its_place():
    assert "ZeroDivisionError: division by zero (" in tried(lambda: 1 / 0).reason


def test_killed_it_goes_on(tmp_path: Path):
    out = tmp_path / "out"
    command = ["audit", "--policy", "plaintext,masked", "--seeds", "4", *FLAGS, "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "secure_fedgraph.cli.main", *command, "--workers", "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    while process.poll() is None and not list(out.glob("cells/*.json")):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {p: p.stat().st_mtime_ns for p in out.glob("cells/*.json")}
    assert before and not (out / "audit.json").exists()
    done = CliRunner().invoke(main, [*command, "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    result = json.loads((out / "audit.json").read_text())
    assert {c["seed"] for c in result["cells"]} == {0, 1, 2, 3} and result["not_run"] == []
    assert CliRunner().invoke(main, command).exit_code == 0  # nothing is left to run
    other = CliRunner().invoke(main, [*command, "--set=rounds=1"])
    assert other.exit_code == 2 and "already holds audit.json" in other.output


def test_algorithms_of_a_grid_have_data_of_their_own(tmp_path: Path):
    from secure_fedgraph.cli.auditing import _experiments

    base = {
        "seed": None,
        "seeds": None,
        "norm": None,
        "multiplier": None,
        "assignments": (),
        "policy": "masked",
    }
    own, _ = _experiments({**base, "algorithm": "fedsage,fairgraphfl", "data": None})
    assert [e.data for e in own] == ["cora", "proteins"]


@pytest.mark.parametrize(
    ("file", "other"),
    [("core/protection/gaussian.py", True), ("core/wire.py", True), ("report/page.py", False)],
)
def test_cells_of_other_code_are_not_these(monkeypatch: pytest.MonkeyPatch, file: str, other: bool):
    """What is measured is the package's own noise: a cell from before a change of it would be stale."""
    (one, *_), digest = wanted(["local_dp"], [0]), code_digest._of_file
    before = one.key
    monkeypatch.setattr(
        code_digest,
        "_of_file",
        lambda path: "changed" if str(path).endswith(f"secure_fedgraph/{file}") else digest(path),
    )
    code_digest.of_rooms.cache_clear()
    assert (one.key != before) is other
    code_digest.of_rooms.cache_clear()
