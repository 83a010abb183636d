"""Comparisons: which points there are, what a row says, and that a second call goes on."""

from __future__ import annotations

import csv
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from command_line import call, held
from result_parts import points as points_of

from secure_fedgraph.client import Client
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.compare.points import ALONE, NO_PRIVACY, NOISED, SILENT, points
from secure_fedgraph.experiment.compare.runs import run_point
from secure_fedgraph.experiment.compare.summary import gains, pareto
from secure_fedgraph.experiment.config import load
from secure_fedgraph.report.first_screens.comparison import compare_opening

WORDS = """--data synthetic-citation --clients 3 --rounds 2 --workers 2 --quiet
    --set dataset.nodes=60 --set dataset.features=16
    --set training.hidden=[8,8] --set training.fanout=[2,2]"""
SMALL = WORDS.split()


def base(**values: object):
    return load(None, {"data": "synthetic-citation", "clients": 3, **values}, ())


def small():
    """As :data:`SMALL`, as a configuration."""
    return base(
        rounds=2,
        dataset={"nodes": 60, "features": 16},
        training={"hidden": [8, 8], "fanout": [2, 2]},
        unit="client",
    )


class TestPoints:
    def test_both_baselines_stand_beside_every_budget(self):
        found = points(
            base(), ["fedsage", "fedavg"], ["distributed_dp", "local_dp"], [1.0, 8.0, float("inf")]
        )
        kinds = {p.name: p.kind for p in found}
        assert [k for k in kinds.values() if k == NO_PRIVACY] == [NO_PRIVACY] * 2
        assert kinds["local-plaintext"] == ALONE  # one for both
        assert kinds["fedsage-distributed_dp-8"] == kinds["fedavg-local_dp-1"] == NOISED
        assert len(found) == 2 + 1 + 2 * 2 * 2
        assert {p.config["partition"] for p in found} == {"louvain"}

    def test_budgets_that_are_nearly_equal_are_two_points(self):
        found = points(base(), ["fedsage"], ["local_dp"], [8.0, 8.000001])
        assert {p.name for p in found if p.kind == NOISED} == {
            "fedsage-local_dp-8",
            "fedsage-local_dp-8.000001",
        }

    @pytest.mark.parametrize(
        ("unit", "expected"), [("client", [(SILENT, None)]), ("node", [(NOISED, 1.0), (NOISED, 8.0)])]
    )
    def test_a_policy_without_noise_keeps_a_budget_of_records_alone(self, unit, expected):
        """Clients train under noise for a node; at client level there is one point without a budget."""
        found = points(base(unit=unit), ["fedsage"], ["masked"], [1.0, 8.0])
        assert [(p.kind, p.epsilon) for p in found if p.policy == "masked"] == expected

    def test_the_baselines_carry_no_noise(self):
        noised = base(protection={"norm": 1.0}, steps={"rate": 0.1})
        bare = [p for p in points(noised, ["fedsage"], ["masked"], [8.0]) if p.kind in (NO_PRIVACY, ALONE)]
        assert len(bare) == 2 and not any(p.config["protection"] or p.config["steps"] for p in bare)

    def test_an_algorithm_that_does_not_run_on_the_partition(self):
        with pytest.raises(BadInput, match="glasu runs on"):
            points(base(), ["fedsage", "glasu"], ["masked"], [])


def told(name: str, epsilon: float | str, score: float) -> dict[str, object]:
    return {"name": name, "outcome": "ran", "epsilon": epsilon, "accuracy": {"global": score}}


def test_pareto_keeps_what_nothing_beats():
    rows = [told("a", 1.0, 0.5), told("b", 2.0, 0.5), told("c", 4.0, 0.7), told("d", "inf", 0.6)]
    assert pareto(rows) == ["a", "c"]
    spent = [{**told("alone", "inf", 0.29), "spent": 0.0}, told("noised", 2.0, 0.2), told("bare", "inf", 0.5)]
    assert pareto(spent) == ["alone", "bare"]
    errors = [
        {**told("e", 1.0, 0), "accuracy": {"mae": 0.9}},
        {**told("f", 1.0, 0), "accuracy": {"mae": 0.8}},
    ]
    assert pareto(errors) == ["f"]


class TestCommand:
    def run(self, out: Path, *more: str):
        asked = ["compare", "--algorithm", "fedsage", "--epsilon", "8,inf", "--unit", "client", "--out"]
        return call(*asked, out, *SMALL, *more)

    def test_what_it_writes(self, tmp_path):
        out = tmp_path / "out"
        done = self.run(out, "--seeds", "2", "--policy", "local_dp,sealed", "--attack", "a1")
        assert done.exit_code == 0, done.output
        result = held(out / "compare.json")
        assert result["schema"] == "secure-fedgraph/compare/1"
        rows = {row["name"]: row for row in result["points"]}
        assert set(rows) == {"fedsage-plaintext", "local-plaintext", "fedsage-local_dp-8", "fedsage-sealed"}
        noised, bare = rows["fedsage-local_dp-8"], rows["fedsage-plaintext"]
        assert noised["seeds"] == 2 and noised["spent"] <= 8 and bare["spent"] == "inf"
        assert (
            noised["interval"]["global"][0] <= noised["accuracy"]["global"] <= noised["interval"]["global"][1]
        )
        assert bare["leak"]["a1-vocabulary-support"] > 0.9
        assert "protects peers only" in rows["fedsage-sealed"]["reason"]
        table = list(csv.DictReader((out / "compare.csv").read_text().splitlines()))
        assert [row["name"] for row in table] == list(rows)
        page = (out / "report.html").read_text()
        assert "Is each budget worth spending?" in page and "was refused" in page
        assert float(table[0]["accuracy_global"]) == rows[table[0]["name"]]["accuracy"]["global"]

    def test_killed_it_goes_on(self, tmp_path):
        out = tmp_path / "out"
        command = [sys.executable, "-m", "secure_fedgraph.cli.main", "compare", "--algorithm", "fedsage"]
        command += ["--epsilon", "8", "--unit", "client", *SMALL, "--out", str(out)]
        process = subprocess.Popen(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True
        )
        while process.poll() is None and not list(out.glob("runs/*/seed-0/result.json")):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before = {p: p.stat().st_mtime_ns for p in out.glob("runs/*/seed-0/result.json")}
        assert before
        done = self.run(out)
        assert done.exit_code == 0, done.output
        assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
        assert len(held(out / "compare.json")["points"]) == 3

    @pytest.mark.parametrize("killed_after", [8, 17, 30])
    def test_killed_inside_a_round_that_was_paid_for_it_begins_anew(
        self, tmp_path, monkeypatch, killed_after
    ):
        """To go on would pay twice, which a budget planned to the last round does not hold."""
        point = next(p for p in points(small(), ["fedsage"], ["distributed_dp"], [8.0]) if p.kind == NOISED)
        config, calls = point.experiment(0).model_dump(mode="json"), itertools.count()
        handle = Client.handle

        def killed(client, raw):
            if next(calls) == killed_after:
                raise KeyboardInterrupt
            return handle(client, raw)

        with monkeypatch.context() as patch:
            patch.setattr(Client, "handle", killed)
            with pytest.raises(KeyboardInterrupt):
                run_point(config, tmp_path)
        run_point(config, tmp_path)
        result = held(tmp_path / "result.json")
        assert len(result["rounds"]) == 2 and result["privacy"]["client"]["epsilon"] <= 8

    @pytest.mark.parametrize("epsilon", ["0", "-1", "many", "1,,x"])
    def test_budgets_that_are_none(self, tmp_path, epsilon):
        done = call("compare", "--epsilon", epsilon, *SMALL, "--out", tmp_path / "o")
        assert done.exit_code == 2
        assert "epsilon" in done.output and epsilon.rpartition(",")[2] in done.output
        assert not (tmp_path / "o").exists()


def scored(kind: str, scores: list[float], **more: object) -> dict[str, object]:
    found = {"kind": kind, "algorithm": "fedsage", "policy": "distributed_dp", "outcome": "ran"}
    each = [{"seed": i, "accuracy": {"global": score}} for i, score in enumerate(scores)]
    mean = {"accuracy": {"global": sum(scores) / len(scores)}}
    return {**found, "epsilon": "inf", **mean, "seeds": len(scores), "each": each, **more}


def test_baselines_that_coincide_are_one_line():
    budgets = [
        {**scored("budget", [0.6], epsilon=e), "algorithm": a, "policy": "masked"}
        for a in ("fedsage", "fedavg")
        for e in (1.0, 8.0)
    ]
    alone = scored("no collaboration", [0.4])
    bare = [{**scored("no privacy", [0.8]), "algorithm": a} for a in ("fedsage", "fedavg")]
    drawn = compare_opening(points_of([*budgets, alone, *bare]), "global", "client").curve
    assert drawn is not None and drawn.svg.count(">no privacy 80.0 %<".replace(" %", "\u202f%")) == 1
    other = [bare[0], {**bare[1], "accuracy": {"global": 0.7}}]
    apart = compare_opening(points_of([*budgets, alone, *other]), "global", "client").curve
    assert apart is not None and ">no privacy, at best" in apart.svg


def test_errors_count_downwards():
    alone, budget = (
        {"outcome": "ran", "accuracy": {"mae": m}, "each": [{"seed": 0, "accuracy": {"mae": m}}]}
        for m in (0.8, 0.7)
    )
    assert gains(budget, alone)["over_alone"]["mae"] == {
        "mean": pytest.approx(0.1),
        "interval": None,
        "seeds": [1, 1],
    }
    assert gains(alone, alone) == {}


class TestWorth:
    """Whether a budget is worth spending, seed by seed."""

    ALONE: ClassVar = {
        "outcome": "ran",
        "each": [{"seed": s, "accuracy": {"global": 0.6, "local": 0.8}} for s in range(3)],
    }

    def row(self, scores: list[dict[str, float]]) -> dict[str, Any]:
        each = [{"seed": seed, "accuracy": one} for seed, one in enumerate(scores)]
        return {"outcome": "ran", "budget": 1.0, "accuracy": scores[0], "each": each}

    @pytest.mark.parametrize(
        ("ours", "verdict"),
        [
            ((0.7, 0.7, 0.7), "Worth"),
            ((0.7, 0.5, 0.7), "Undecided"),
            ((0.601, 0.75, 0.602), "Undecided"),  # above on every seed, by chance for all one knows
            ((0.7,), "Undecided"),
            ((0.5, 0.5, 0.5), "Not worth"),
        ],
    )
    def test_it_needs_every_seed_and_an_interval_above_local_training(self, ours, verdict) -> None:
        scores = [{"global": one, "local": 0.7} for one in ours]
        found = gains(self.row(scores), self.ALONE)
        assert found["worth"].startswith(verdict)
        assert found["over_alone"]["global"]["seeds"] == [sum(one > 0.6 for one in ours), len(ours)]

    def test_personal_models_are_measured_against_what_owners_have_without_the_release(self) -> None:
        """Better than local training, and no better than without the budget: that budget bought nothing."""
        scores = [{"global": 0.9, "local": 0.9, "personal": 0.85, "own": 0.86}] * 3
        found = gains(self.row(scores), self.ALONE)
        assert found["worth"].startswith("Not worth")
        assert found["over_alone"]["personal"]["seeds"] == [0, 3]

    def test_no_budget_has_no_verdict(self) -> None:
        assert "worth" not in gains({**self.row([{"global": 0.9}]), "budget": None}, self.ALONE)
