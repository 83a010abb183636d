"""What a defence costs is the difference of two runs that are alike but for the defence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import script

from secure_fedgraph.experiment.config import load

costs, defences = script("defence_costs"), script("attack_defences")
BY_NAME = {one.name: one for one in defences.DEFENCES}
ROOT = Path(__file__).resolve().parents[3]


def small(policy: str, *changes: str) -> Any:
    flags = {"data": "synthetic-citation", "policy": policy, "rounds": 3, "checkpoint_every": 0}
    return load(None, flags, ["dataset.nodes=90", *changes])


def pair(name: str = "mine") -> Any:
    return costs.Pair(name, "masked", "plaintext", small("masked"), small("plaintext"))


def run_of(accuracy: float, up: int, cpu: list[float]) -> dict[str, Any]:
    return {
        "seed": 0,
        "accuracy": {"global": accuracy, "local": 0.0},
        "bytes": {"up": up},
        "config": {"clients": 2},
        "rounds": [{}] * len(cpu),
        "cpu": cpu,
    }


def test_a_row_is_points_and_ratios_of_each_seed(monkeypatch):
    monkeypatch.setattr(costs, "claims", lambda runs: {"client": {"epsilon": "inf", "reason": "x"}})
    runs = [
        (run_of(0.7, 600, [3.0, 1.0, 90.0]), run_of(0.8, 300, [1.0, 1.0, 5.0])),
        (run_of(0.9, 900, [1.0, 1.0, 90.0]), run_of(0.8, 300, [1.0, 1.0, 5.0])),
    ]
    row = costs.row_of(pair(), runs)
    assert row["points"] == pytest.approx([-10.0, 10.0])
    assert row["bytes_without"] == [50.0, 50.0]
    assert row["bytes_ratio"] == [2.0, 3.0]
    assert row["cpu_ratio"] == [2.0, 1.0]  # without the last round, which is scored
    assert (row["epsilon"], row["infinite"], row["otherwise"]) == ({"client": "inf"}, ["x"], [])


def test_a_refused_run_is_told_and_counts_in_no_figure():
    row = costs.row_of(pair(), [({"reason": "no"}, run_of(0.8, 300, [1.0, 1.0]))])
    assert row["otherwise"] == ["no"]
    assert row["seeds"] == row["points"] == []
    assert costs.told_epsilons(row["epsilon"]) == "-"


def test_epsilons_are_infinite_or_told_by_unit():
    assert costs.told_epsilons({"client": "inf", "node": "inf"}) == "infinite"
    assert costs.told_epsilons({"client": 6.573, "node": "inf"}) == "client 6.57, node inf"


def test_a_folder_is_of_the_settings_and_of_no_seed_and_no_defence():
    assert costs.place(small("masked", "seed=3")) == costs.place(small("masked"))
    assert costs.place(small("masked", "training.batch=32")) != costs.place(small("masked"))


def test_runs_are_shared_and_not_made_again(tmp_path):
    costs.measure([pair("one"), pair("two")], 1, tmp_path)
    results = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/seed-0/result.json")}
    assert len(results) == 2
    costs.measure([pair("one")], 1, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in results} == results
    first, second = costs.rows([pair("one"), pair("two")], 1, tmp_path)
    assert {**first, "defence": ""} == {**second, "defence": ""}
    assert first["points"] == pytest.approx([0.0], abs=3)
    assert set(first["epsilon"].values()) == {"inf"}


def test_what_was_stopped_is_begun_again(tmp_path):
    folder = tmp_path / costs.place(small("plaintext")) / "seed-0"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / costs.CPU).write_text(json.dumps({"rounds": [99.0]}))
    costs.measure([pair()], 1, tmp_path)
    assert max(costs.kept(small("plaintext"), 0, tmp_path)["cpu"]) < 99


def test_what_is_refused_is_told_by_a_later_call(tmp_path):
    refused = costs.Pair("mine", "", "", small("local_dp", "protection.norm=1.0"), small("plaintext"))
    costs.measure([refused], 1, tmp_path)
    (row,) = costs.rows([refused], 1, tmp_path)
    assert "multiplier" in row["otherwise"][0]


def test_a_pair_differs_in_the_defence_alone():
    for one in defences.DEFENCES:
        defended, bare = (side.model_dump() for side in (one.pair.defended, one.pair.bare))
        named = {change.split("=")[0].split(".")[0] for change in (*one.against, *one.instead)}
        assert {key for key in defended if defended[key] != bare[key]} <= {*named, "policy"}, one.name
        assert defended != bare, one.name


def test_one_defence_against_many_attacks_is_measured_once():
    masked = [
        costs.place(BY_NAME[f"weights-masked{end}"].pair.defended) for end in ("", "-single", "-counts")
    ]
    assert len(set(masked)) == 1
    assert BY_NAME["lists-valued"].pair.defended == BY_NAME["payoffs-valued"].pair.defended


def test_no_cost_is_taken_from_a_model_that_an_attack_needs():
    for one in defences.DEFENCES:
        for side in (one.pair.defended, one.pair.bare):
            assert side.rounds == costs.COST_ROUNDS
            assert not {"optimizer", "share", "hidden", "reduction"} & side.training.keys(), one.name


def test_json_is_one_object_of_both_tables(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks/attack_defences.py"), "--table", "--json"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"attacks": [], "costs": []}
