"""What a comparison says: leaks of single owners against a guess, what was spent, logs, time that is left."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import result_parts
from click.testing import CliRunner, Result
from in_this_process import at_once
from rich.console import Console

from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.cli import comparing, tables
from secure_fedgraph.cli.compare_attacks import Attacks, attacks_on
from secure_fedgraph.cli.main import main
from secure_fedgraph.experiment.compare import pareto, points
from secure_fedgraph.experiment.compare.eta import Job, Remaining
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.schema import CompareResult
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.report.page import write_report
from secure_fedgraph.report.sections.compare_page import _leak

SMALL = ["--data", "synthetic-citation", "--set", "dataset.nodes=60", "--set", "dataset.features=16"]
SMALL += ["--set", "training.hidden=[8,4]", "--rounds", "1"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)


def call(out: Path, *more: str) -> Result:
    start = ["compare", "--algorithm", "fedsage", *SMALL, "--out", str(out)]
    return CliRunner().invoke(
        main, [*start, *(more if "--policy" in more else ("--policy", "masked", *more))]
    )


def told(out: Path) -> dict[str, Any]:
    return json.loads((out / "compare.json").read_text())


def rows(out: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in told(out)["points"]}


def cell(
    score: float | None, leaks: bool, aim: str = SINGLE_OWNERS, owners: int | None = 1, **more: Any
) -> dict:
    return {
        "attack": "a1-vocabulary-support", "adversary": "server",
        "outcome": "blind" if score is None else "score",
        "score": score, "baseline": 0.5, "low": 0.4, "leaks": leaks, "owners": owners,
        "settings": {"aim": aim, "variant": "as configured"}, **more,
    }  # fmt: skip


def strongest(monkeypatch: pytest.MonkeyPatch, *cells: dict[str, Any]) -> dict[str, Any]:
    monkeypatch.setattr(grid, "audit", lambda *_, **__: Audit(cells=list(cells)))
    base = load(None, {"data": "synthetic-citation", "algorithm": "fedsage", "policy": "masked"}, ())
    return Attacks(("a1-vocabulary-support",))(base.model_dump(mode="json"))


def test_what_a_defence_leaves_of_a_single_owner_is_a_leak_of_it(monkeypatch):
    found = strongest(monkeypatch, cell(None, False, owners=None), cell(1.0, True, RESIDUAL, 1))
    assert found["leak"] == {"a1-vocabulary-support": 1.0}
    assert found["leaks"]["a1-vocabulary-support"] == {
        "score": 1.0, "baseline": 0.5, "low": 0.4, "leaks": True, "adversary": "server", "aim": RESIDUAL,
    }  # fmt: skip


@pytest.mark.parametrize("owners", [3, None])
def test_what_all_owners_show_together_is_no_single_ones(monkeypatch, owners):
    found = strongest(monkeypatch, cell(None, False, owners=None), cell(1.0, True, RESIDUAL, owners))
    assert found == {"leak": {"a1-vocabulary-support": "blind"}, "leaks": {}}


def test_a_score_that_leaks_is_stronger_than_a_higher_one_that_a_guess_has(monkeypatch):
    cells = cell(0.9, False, baseline=0.95), cell(0.8, True, adversary="client"), cell(0.7, True)
    found = strongest(monkeypatch, *cells)
    assert found["leak"] == {"a1-vocabulary-support": 0.8}
    assert found["leaks"]["a1-vocabulary-support"]["adversary"] == "client"


def test_an_attack_that_reads_another_of_its_channels_runs():
    ego = {"hidden": [4, 4], "fanout": [2, 2], "mash": "across"}
    base = load(None, {"data": "synthetic-citation", "algorithm": "fedego", "training": ego}, ())
    sent = {channel.name for channel in base.make_algorithm().in_use}
    kinds = [
        kind for kind in choices.choose(["mash"]) if kind.channel not in sent and sent & {*kind.also_reads}
    ]
    assert kinds
    _, found = Attacks(tuple(kind.id for kind in kinds))._fitting(base.model_dump(mode="json"))
    assert found == kinds
    (point, *_) = points(base, ["fedego"], ["masked"], [])
    assert set(attacks_on([point], ["mash"]).attacks) >= {kind.id for kind in kinds}


def test_every_attack_that_was_asked_for_stands_in_every_row(tmp_path):
    assert call(tmp_path, "--attack", "a1,a4").exit_code == 0
    asked = told(tmp_path)["attacks"]
    assert len(asked) == 2 and all(list(row["leak"]) == asked for row in rows(tmp_path).values())
    assert rows(tmp_path)["local-plaintext"]["leak"] == dict.fromkeys(asked, "blind")
    plain = rows(tmp_path)["fedsage-plaintext"]
    assert {a: one["score"] for a, one in plain["leaks"].items()} == plain["leak"]


def test_other_attacks_are_run_and_earlier_ones_are_not_told(tmp_path):
    assert call(tmp_path, "--attack", "a4").exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*/result.json")}
    assert call(tmp_path, "--attack", "a1").exit_code == 0
    assert {tuple(row["leak"]) for row in rows(tmp_path).values()} == {("a1-vocabulary-support",)}
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(("leaks", "word"), [(True, "leaks"), (False, "no better")])
def test_page_and_terminal_say_in_a_word_what_beats_a_guess(tmp_path, leaks, word):
    assert call(tmp_path).exit_code == 0
    result = told(tmp_path)
    row = result["points"][0]
    row["leak"] = {"a1-vocabulary-support": 0.98}
    row["leaks"] = {"a1-vocabulary-support": {"score": 0.98, "baseline": 0.25, "low": 0.3, "leaks": leaks,
                                              "adversary": "server", "aim": SINGLE_OWNERS}}  # fmt: skip
    (tmp_path / "compare.json").write_text(json.dumps(result))
    assert f"0.980 {word} (guess 0.250)" in write_report(tmp_path).read_text()
    screen = Console(file=io.StringIO(), width=80)
    for table in tables.compare_tables(CompareResult.model_validate(result)):
        screen.print(table)
    (line,) = [line for line in screen.file.getvalue().splitlines() if "0.980" in line]
    assert "0.250" in line and ("leaks" in line) is leaks


def test_an_exact_guess_of_too_few_terms_is_not_called_no_better():
    told = {"score": 1.0, "baseline": 0.75, "low": 0.4, "leaks": False}
    (row,) = result_parts.points([{"leak": {"a4-label-counts": 1.0}, "leaks": {"a4-label-counts": told}}])
    assert _leak(row, "a4-label-counts") == "1.000 exact, of too few to tell (guess 0.750)"


def test_a_budget_that_was_not_asked_for_is_none_and_epsilon_is_what_was_spent(tmp_path):
    flags = ["--policy", "local_dp,masked", "--norm", "1", "--multiplier", "3"]
    assert call(tmp_path / "own", *flags).exit_code == 0
    found = rows(tmp_path / "own")
    noised = found["fedsage-local_dp"]
    assert (
        noised["budget"] is None and noised["epsilon"] == noised["spent"] and 0 < noised["spent"] < math.inf
    )
    assert found["fedsage-plaintext"]["epsilon"] == found["fedsage-masked"]["epsilon"] == "inf"
    assert found["local-plaintext"]["epsilon"] == found["local-plaintext"]["spent"] == 0.0
    assert call(tmp_path / "asked", "--policy", "local_dp", "--epsilon", "4").exit_code == 0
    asked = rows(tmp_path / "asked")["fedsage-local_dp-4"]
    assert asked["budget"] == asked["epsilon"] == 4.0 and asked["spent"] <= 4
    page = (tmp_path / "own" / "report.html").read_text()
    assert re.search(r'data-label="budget, ε \(node\)">none<', page)
    assert f'data-label="spent">{noised["spent"]:.4g}' in page


def test_who_spends_nothing_and_is_better_leaves_no_star_to_who_spends():
    def row(name: str, epsilon: float | str, spent: float | str, score: float) -> dict[str, Any]:
        return {
            "name": name,
            "outcome": "ran",
            "epsilon": epsilon,
            "spent": spent,
            "accuracy": {"global": score},
        }

    found = [row("alone", "inf", 0.0, 0.289), row("noised", 2.0, 2.0, 0.2), row("bare", "inf", "inf", 0.5)]
    assert pareto(found) == ["alone", "bare"]


def test_runs_are_logged_each_under_its_own_name(tmp_path, monkeypatch):
    (tmp_path / "mlflow.py").write_text(
        "import json\n"
        "def _note(name):\n"
        "    def call(*args, **more):\n"
        f"        with open({str(tmp_path / 'notes')!r}, 'a') as file:\n"
        "            file.write(json.dumps([name, [str(a) for a in args], str(more)]) + chr(10))\n"
        "    return call\n"
        "NAMES = 'set_tracking_uri set_experiment start_run log_params log_metrics log_dict end_run'\n"
        "for name in NAMES.split():\n"
        "    globals()[name] = _note(name)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    try:
        done = call(tmp_path / "out", "--log", "mlflow:here", "--seeds", "2")
    finally:
        sys.modules.pop("mlflow", None)
    assert done.exit_code == 0, done.output
    notes = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    started = sorted(re.findall(r"'run_name': '(.*?)'", " ".join(n[2] for n in notes if n[0] == "start_run")))
    assert started == sorted(f"{name}/seed-{seed}" for name in rows(tmp_path / "out") for seed in (0, 1))
    assert sum("'step': 1" in n[2] for n in notes) == len(started)  # one round each
    assert sum(n[0] == "log_dict" and "'accuracy'" in n[1][0] for n in notes) == len(started)
    assert [n[1] for n in notes if n[0] == "end_run"] == [["FINISHED"]] * len(started)


def test_a_log_whose_package_is_not_there_is_said_before_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    done = call(tmp_path / "out", "--log", "mlflow:here")
    assert done.exit_code == 2 and "pip install 'secure-fedgraph[mlflow]'" in done.output
    assert not (tmp_path / "out").exists()


def jobs() -> list[Job]:
    base = load(None, {"data": "synthetic-citation", "algorithm": "fedsage"}, ())
    chosen = points(base, ["fedsage", "fedavg"], ["masked"], [])
    return [Job(point, seed) for seed in (0, 1) for point in chosen]


def test_time_that_is_left_follows_the_nearest_that_was_measured(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    every = {job.name: job for job in jobs()}
    sage, masked = every["fedsage-plaintext, seed 0"], every["fedsage-masked, seed 0"]
    left = Remaining(workers=2)
    assert left.left([sage]) is None and not left.knows([sage])
    left.ended(sage, 10.0)
    assert left.of(masked) == 10.0  # of its algorithm
    left.ended(masked, 40.0)
    assert left.of(every["fedsage-masked, seed 1"]) == 40.0  # of its point
    assert left.of(every["fedavg-masked, seed 0"]) == 25.0  # of all
    assert left.knows([sage]) and not left.knows([sage, every["fedavg-masked, seed 0"]])
    left.started(every["fedsage-masked, seed 1"])
    clock[0] += 30
    waiting = [every["fedsage-plaintext, seed 1"], every["fedavg-masked, seed 0"]]
    assert left.left(waiting) == 25.0  # 10 + 10 + 25 on two processes, and no run is split
    assert Remaining(1, [(sage, 10.0)]).left(waiting) == 20.0


def test_bytes_follow_the_nearest_run_that_ended_and_attacks_send_none():
    every = {job.name: job for job in jobs()}
    sage, masked = every["fedsage-plaintext, seed 0"], every["fedsage-masked, seed 0"]
    known = Remaining(workers=1)
    known.ended(sage, 1.0, (100, 10))
    known.ended(masked, None, (200, 30))
    known.ended(Job(sage.point, None), 1.0)
    left = [every["fedsage-masked, seed 1"], every["fedavg-plaintext, seed 0"], Job(masked.point, None)]
    assert known.traffic([]) == (300, 40)
    assert known.traffic(left) == (300 + 200 + 150, 40 + 30 + 20)  # of its point; of all


def test_a_run_in_the_clear_foretells_no_encrypted_one():
    base = load(None, {"data": "synthetic-citation", "algorithm": "fedsage"}, ())
    plain, encrypted = (Job(one, 0) for one in points(base, ["fedsage"], ["homomorphic"], [])[:2])
    known = Remaining(workers=1)
    known.ended(plain, 1.0, (100, 10))
    assert known.knows([plain]) and not known.knows([plain, encrypted])


def test_a_large_comparison_says_early_what_it_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(comparing, "LONG", 0.0)
    done = call(tmp_path, "--seeds", "3", "--workers", "1")
    assert done.exit_code == 0, done.output
    said = r"(\d+) of 9 runs are left: about [\d.]+ (?:s|min \d+ s) on 1 process; "
    size = r"([\d.]+) ([kM]?)B"
    ((left, up, of_up, down, of_down),) = re.findall(
        rf"{said}{size} up and {size} down in all runs, ", done.output
    )
    assert int(left) >= 6  # one of each of the two algorithms was enough
    runs = [json.loads(path.read_text())["bytes"] for path in tmp_path.rglob("seed-*/result.json")]
    assert len(runs) == 9
    units = {"": 1, "k": 1e3, "M": 1e6}
    for side, foreseen, unit in (("up", up, of_up), ("down", down, of_down)):
        assert 0.25 < units[unit] * float(foreseen) / sum(sent[side] for sent in runs) < 4
    assert "of memory for each process so far" in done.output
    monkeypatch.setattr(comparing, "LONG", 30.0)
    assert "are left" not in call(tmp_path / "other").output
