"""Canaries in whole runs: without noise every coin is read, right runs hold, breaks of the whole run show."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from secure_fedgraph.attacks import VocabularySupport
from secure_fedgraph.audits.empirical_dp import one_run
from secure_fedgraph.audits.empirical_dp.empirical import BROKEN, HOLDS, UNAUDITED, WEAK
from secure_fedgraph.audits.empirical_dp.one_run import one_run_rows, planted
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.protection.rounded_gaussian import RoundedGaussian
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.privacy import dp_sgd

BASE: dict[str, Any] = {
    "algorithm": "fedavg",
    "data": "synthetic-citation",
    "dataset": {"nodes": 600, "features": 16},
    "clients": 4,
    "rounds": 2,
}
NARROW = {"fanout": [2], "hidden": [8], "places": 5, "crowd": 60}
SPLIT = {"local_tests": 5, "local_share": 0.4}
EGO = {"hidden": [16, 16], "fanout": [2, 2], "batch": 8, "epochs": 1, "server_epochs": 2, "mash": "across"}
LITTLE = {"norm": 1.0, "multiplier": 1e-3}
KINDS: dict[str, dict[str, Any]] = {
    # what carries the canaries -> a run with hardly any noise
    "an upload that the server reads": {"policy": "local_dp", "protection": LITTLE},
    "a sum": {"policy": "distributed_dp", "protection": LITTLE},
    "a client that is replaced": {"policy": "local_dp", "protection": LITTLE, "relation": "replace"},
    "sums over graphs": {
        "algorithm": "fairgraphfl",
        "data": "synthetic-molecules",
        "dataset": {},
        "policy": "local_dp",
        "training": {"hidden": 8, "layers": 2, "diversity": "shared", "copies": "own", "prototypes": "none"},
        "unit": "graph",
        "protection": LITTLE,
    },
    "two channels": {
        "algorithm": "fedego",
        "policy": "local_dp",
        "protection": LITTLE,
        "training": {**EGO, "mashes": 3},
        "split": SPLIT,
    },
    "noisy steps": {
        "policy": "masked",
        "unit": "node",
        "steps": {"noise": 1e-3, "rate": 0.5},
        "training": NARROW,
    },
}


def made(**more: Any) -> Experiment:
    """Of one owner, where a budget names no other unit: few owners' default is a node."""
    unit = {"unit": "client"} if "epsilon" in more else {}
    return load(None, {**BASE, **unit, **more}, ())


@pytest.mark.parametrize("name", KINDS)
def test_without_noise_to_speak_of_every_coin_is_read(name: str):
    run, planting = planted(made(**KINDS[name]))
    ins, outs = planting.scores(run.transcript.view("server"))
    assert len(ins) + len(outs) == len(planting.coins) >= 4
    if name == "noisy steps":  # Adam's steps, and canaries of few coordinates in each other's way
        assert np.mean(ins[:, None] > outs) > 0.95
    else:
        assert (ins > 0).all() and (outs < 0).all()


@pytest.mark.parametrize("policy", ["local_dp", "distributed_dp"])
def test_a_right_run_holds(policy: str):
    (row,) = one_run_rows(made(policy=policy, epsilon=4.0), 150)
    assert row["outcome"] == HOLDS, row
    assert row["claim"] == pytest.approx(4.0, abs=0.01) and row["trials"] == 150
    assert row["lower"] < row["claim"] < row["ceiling"]
    assert row["of"] == "all 2 rounds, 3 runs" and row["unseen"]


def test_rows_of_several_tensors_are_read_as_they_were_planted():
    """A mash is one row a mash in two tensors: alone, without the reduction beside it, it is read too."""
    more = {**KINDS["two channels"], "training": {**EGO, "mashes": 16, "average_reduction": False}}
    run, planting = planted(made(**more))
    ins, outs = planting.scores(run.transcript.view("server"))
    assert len(planting.noised) >= 1 and "reduction" not in planting.noised
    assert (ins > 0).all() and (outs < 0).all()


def test_no_two_canaries_share_a_coordinate():
    _, planting = planted(made(policy="masked", unit="node", epsilon=8.0, training=NARROW, clients=3))
    width = 64
    for of in (1, 5, 60):
        rows = [planting.direction((name, i), width, of) for name in planting.clients for i in range(of)]
        found = torch.stack([row for row in rows if row is not None])
        assert torch.allclose(found @ found.T, torch.eye(len(found)), atol=1e-6)
        assert len(found) <= width
    assert planting.direction((planting.clients[2], 0), 2) is None  # fewer coordinates than clients


def test_a_row_names_the_unit_that_steps_speak_for():
    (row,) = one_run_rows(made(policy="masked", steps={"noise": 20.0}, training=NARROW), 10)
    assert row["unit"] == "node"
    assert row["outcome"] in (HOLDS, WEAK)


def test_a_ledger_that_others_share_is_neither_charged_nor_asked(tmp_path: Path):
    spent = made(policy="local_dp", epsilon=4.0, ledger=tmp_path / "ledger.jsonl")
    execute(spent, None)  # what it planned for is used up
    before = (tmp_path / "ledger.jsonl").read_text()
    (row,) = one_run_rows(spent, 50)
    assert row["outcome"] != UNAUDITED and row["claim"] == pytest.approx(4.0, abs=0.01)
    assert (tmp_path / "ledger.jsonl").read_text() == before


def test_a_budget_for_labels_is_held_too():
    (row,) = one_run_rows(made(policy="local_dp", epsilon=8.0, unit="label"), 8)
    assert row["unit"] == "label" and row["outcome"] != UNAUDITED, row


def test_the_runs_before_one_that_fails_are_judged(monkeypatch: pytest.MonkeyPatch):
    real, calls = one_run._run, itertools.count()

    def once(experiment: Experiment) -> one_run.CanaryRun:
        if next(calls):
            raise BadInput("no more")
        return real(experiment)

    monkeypatch.setattr(one_run, "_run", once)
    (row,) = one_run_rows(made(policy="local_dp", epsilon=4.0), 200)
    assert row["trials"] == 50 and row["outcome"] in (HOLDS, WEAK)


def test_pooled_data_have_no_canaries():
    (row,) = one_run_rows(made(algorithm="globsage", policy="local_dp", epsilon=4.0), 50)
    assert row["outcome"] == UNAUDITED


def test_strictest_with_a_budget_has_canaries_too():
    strict = made(policy="strictest", epsilon=8.0)
    found = grid.planned_runs([strict], ["strictest"], [VocabularySupport], [0], canaries=50)
    assert [planned.canaries for planned in found if planned.canaries] == [50]


def test_steps_need_more_canaries_than_there_are():
    (row,) = one_run_rows(made(policy="masked", unit="node", epsilon=8.0, training=NARROW), 30)
    assert row["outcome"] == WEAK and row["method"] == "one run"


def test_what_claims_nothing_is_not_audited():
    for more in ({"policy": "masked"}, {"policy": "local_dp", "protection": LITTLE}):
        (row,) = one_run_rows(made(**more), 50)
        assert row["outcome"] == UNAUDITED and "claim" in row["reason"]


def test_data_that_have_no_crowd_are_run_as_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(one_run, "RUNS", 2)
    (row,) = one_run_rows(made(dataset={"nodes": 40, "features": 16}, policy="local_dp", epsilon=8.0), 100)
    assert row["trials"] == 8


# --- breaks that the audit of one upload cannot see


def _noise_in_the_first_round_only(patch: pytest.MonkeyPatch) -> None:
    apply = Gaussian.apply

    def lazy(self: Gaussian, matrix: np.ndarray, scope: Any) -> np.ndarray:
        if scope.round == 1:
            return apply(self, matrix, scope)
        return np.asarray(matrix, dtype=np.float64)

    patch.setattr(Gaussian, "apply", lazy)


def _half_of_it(patch: pytest.MonkeyPatch) -> None:
    draw = RoundedGaussian.draw
    patch.setattr(RoundedGaussian, "draw", lambda self, size: draw(self, size) // 3)


MUTANTS = {"noise in the first round only": _noise_in_the_first_round_only, "a third of it": _half_of_it}


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_runs_are_refuted(name: str, monkeypatch: pytest.MonkeyPatch):
    MUTANTS[name](monkeypatch)
    (row,) = one_run_rows(made(policy="local_dp", epsilon=4.0, rounds=5), 400)
    assert row["outcome"] == BROKEN, row


def test_steps_without_noise_are_refuted(monkeypatch: pytest.MonkeyPatch):
    sampler = dp_sgd.rounded_gaussian

    class Silent:
        def __init__(self, sigma: int) -> None:
            self.total_variation = sampler(sigma).total_variation

        def draw(self, size: int) -> np.ndarray:
            return np.zeros(size)

    monkeypatch.setattr(dp_sgd, "rounded_gaussian", Silent)
    (row,) = one_run_rows(made(policy="masked", unit="node", epsilon=1.0, training=NARROW), 150)
    assert row["outcome"] == BROKEN, row


class TestCommand:
    words = """audit --data synthetic-citation --set dataset.nodes=300 --set dataset.features=16 --rounds 1
        --algorithm fedavg --policy masked,local_dp --epsilon 8 --unit client --attack a1 --quiet
        --canaries 50 --out"""

    def run(self, out: Path, *more: str) -> Any:
        return CliRunner().invoke(main, [*self.words.split(), str(out), *more])

    def test_its_rows_stand_beside_the_others_and_are_kept(self, tmp_path: Path):
        assert self.run(tmp_path / "a").exit_code == 0
        found = json.loads((tmp_path / "a" / "audit.json").read_text())["empirical"]
        assert [(row["policy"], row["noise"]) for row in found] == [
            ("local_dp", "channel update"),
            ("local_dp", "the whole run"),
        ]
        assert found[1]["outcome"] in (HOLDS, WEAK)
        kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "a" / "cells").iterdir()}
        assert len(kept) == 3
        assert self.run(tmp_path / "a").exit_code == 0
        assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "a" / "cells").iterdir()}

    def test_what_a_budget_left_out_is_named(self, tmp_path: Path):
        assert self.run(tmp_path / "b", "--budget-minutes", "0.0001").exit_code == 1
        left = json.loads((tmp_path / "b" / "audit.json").read_text())["not_run"]
        assert {"canaries"} <= {cell["attack"] for cell in left}
