"""What a comparison says: leaks of single owners against a guess, what was spent."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import result_parts
from click.testing import Result
from command_line import compare, compared, held
from in_this_process import at_once
from rich.console import Console

from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.cli import tables
from secure_fedgraph.cli.comparing.compare_attacks import Attacks, attacks_on
from secure_fedgraph.experiment.compare.points import points
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.schema import CompareResult
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.report.page import write_report
from secure_fedgraph.report.sections.compare_page import _leak


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)


def call(out: Path, *more: str) -> Result:
    return compare(out, "--rounds", 1, *more)


def told(out: Path) -> dict[str, Any]:
    return held(out / "compare.json")


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
    assert Attacks(tuple(kind.id for kind in kinds)).fitting(base) == kinds
    (point, *_) = points(base, ["fedego"], ["masked"], [])
    assert set(attacks_on([point], ["mash"]).attacks) >= {kind.id for kind in kinds}


def test_every_attack_that_was_asked_for_stands_in_every_row(tmp_path):
    assert call(tmp_path, "--attack", "a1,a4").exit_code == 0
    asked = told(tmp_path)["attacks"]
    assert len(asked) == 2 and all(list(row["leak"]) == asked for row in compared(tmp_path).values())
    assert compared(tmp_path)["local-plaintext"]["leak"] == dict.fromkeys(asked, "blind")
    plain = compared(tmp_path)["fedsage-plaintext"]
    assert {a: one["score"] for a, one in plain["leaks"].items()} == plain["leak"]


def test_other_attacks_are_run_and_earlier_ones_are_not_told(tmp_path):
    assert call(tmp_path, "--attack", "a4").exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*/result.json")}
    assert call(tmp_path, "--attack", "a1").exit_code == 0
    assert {tuple(row["leak"]) for row in compared(tmp_path).values()} == {("a1-vocabulary-support",)}
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
    found = compared(tmp_path / "own")
    noised = found["fedsage-local_dp"]
    assert (
        noised["budget"] is None and noised["epsilon"] == noised["spent"] and 0 < noised["spent"] < math.inf
    )
    assert found["fedsage-plaintext"]["epsilon"] == found["fedsage-masked"]["epsilon"] == "inf"
    assert found["local-plaintext"]["epsilon"] == found["local-plaintext"]["spent"] == 0.0
    assert call(tmp_path / "asked", "--policy", "local_dp", "--epsilon", "4").exit_code == 0
    asked = compared(tmp_path / "asked")["fedsage-local_dp-4"]
    assert asked["budget"] == asked["epsilon"] == 4.0 and asked["spent"] <= 4
    page = (tmp_path / "own" / "report.html").read_text()
    assert re.search(r'data-label="budget, ε \(node\)">none<', page)
    assert f'data-label="spent">{noised["spent"]:.4g}' in page
