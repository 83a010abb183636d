"""The tables of all attacks have the figures that are kept, and say which of them fall short."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scripts import script

page = script("attacks_page")
COSTED = {"algorithm": "fedsage", "data": "cora", "settings": "masked", "without": "plaintext", "shared": ""}


def attacked(**changes: Any) -> dict[str, Any]:
    row = {
        "algorithm": "fedsage",
        "data": "cora",
        "policy": "plaintext",
        "aim": "single owners",
        "attack": "a1-vocabulary-support",
        "adversary": "server",
        "settings": "as configured",
        "rounds": 2,
        "changes": ["training.epochs=3"],
        "figure": "f1",
        "asked": None,
        "score": [0.75, 0.25],
        "interval": [[0.6, 0.9], [0.1, 0.4]],
        "trivial": [0.5, 0.5],
        "reached": False,
        "defaults": [],
        "otherwise": [],
    }
    return row | changes


def defended(aim: str, **changes: Any) -> dict[str, Any]:
    row = {"defence": "masks", "attack": "a1-vocabulary-support", "adversary": "server", "aim": aim}
    scored = {"figure": "f1 at |E|", "score": [0.75, 0.25], "trivial": [0.5, 0.5], "leaks": [True, False]}
    return row | scored | {"otherwise": []} | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reached": True}, ""),
        ({}, " (**at 1 of 2 seeds**)"),
        ({"interval": [[0.4, 0.9], [0.1, 0.4]]}, " (**at 0 of 2 seeds**)"),
        ({"asked": 0.9}, " (**0.9 not reached**)"),
    ],
)
def test_what_is_not_reached_is_said(changes: dict[str, Any], said: str) -> None:
    line = page.attack_lines([attacked(**changes), attacked(score=[0.1, 0.1])])[2]
    assert f" | `fedsage`: 0.500 ± 0.354 f1 (0.500){said}† | " in line


def test_a_defence_that_leaves_something_at_some_seeds_says_so() -> None:
    blind = {"score": [], "trivial": [], "leaks": [], "figure": "", "otherwise": ["blind: nothing is sent"]}
    own, left = (page.SINGLE_OWNERS, page.RESIDUAL)
    (line,) = page.defence_lines([defended(own, **blind), defended(left)])[2:]
    assert line.endswith("| blind | **0.500 ± 0.354** (1 of 2) |")
    lines = page.defence_lines(
        [defended(own), defended(left), defended(own, **blind), defended(left, **blind)]
    )
    assert lines[3:] == ["", "Blind, or no better than the guess, on both: `a1-vocabulary-support` (masks)."]


def test_defences_of_the_same_runs_share_a_line() -> None:
    measured = {key: [1.0, 1.5] for key in ("accuracy", "accuracy_without", "bytes_ratio", "cpu_ratio")}
    row = {**COSTED, **measured, "seeds": [0, 1], "epsilon": {"node": "inf", "client": 2.5}}
    lines = page.cost_lines([{"defence": name, **row} for name in ("one", "two")])
    assert len([line for line in lines if line.startswith("|")]) == 3
    assert lines[-1].startswith("Not measured: weights-masked, ")
    assert lines[2].startswith("| one, two | `fedsage`, `masked` | 1.250 ± 0.354 |")
    assert lines[2].endswith("| 1.250 ± 0.354 | 1.250 ± 0.354 | node inf, client 2.5 |")


def test_what_costs_seconds_alone_is_one_line() -> None:
    measured = {"accuracy": [0.8], "accuracy_without": [0.8], "bytes_ratio": [1.0], "cpu_ratio": [1.5]}
    lines = page.cost_lines(
        [{"defence": "one", **COSTED, **measured, "seeds": [0], "epsilon": {"node": "inf"}}]
    )
    assert lines[2:4] == ["", "Cost seconds alone, × 1.50 to × 1.50: one."]


def test_refused_runs_have_no_figures() -> None:
    assert "| refused |" in page.cost_lines([{"defence": "one", **COSTED, "seeds": []}])[2]
