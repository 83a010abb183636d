"""The page of a comparison: which point is marked, every line by name, what budgets stand beside."""

from __future__ import annotations

import re
from typing import Any

import pytest
import result_parts

from secure_fedgraph.experiment.schema import CompareResult
from secure_fedgraph.report.first_screens.comparison import compare_opening
from secure_fedgraph.report.sections.compare_page import compare_story

WITHOUT = {"name": "fedridge-without-graph", "algorithm": "fedridge", "accuracy": {"global": 0.61}}


def row(algorithm: str, kind: str, score: float, epsilon: float | str = "inf", **more: Any) -> dict[str, Any]:
    return {
        **result_parts.POINT, **result_parts.MEASURED, "name": f"{algorithm}-{kind}-{epsilon}", "kind": kind,
        "algorithm": algorithm, "policy": "distributed_dp", "unit": "node", "epsilon": epsilon,
        "budget": None if epsilon == "inf" else epsilon, "accuracy": {"global": score}, **more,
    }  # fmt: skip


@pytest.fixture
def told() -> dict[str, Any]:
    why = ["One client's epsilon is unbounded: it is."]
    of_owners = {"accuracy": {"global": 0.7, "personal": 0.8, "own": 0.75}}
    new = {
        "without_graph": WITHOUT,
        "larger_units": why,
        "commonest_class": 0.3,
        "worth": "Worth spending: it is.",
    }
    points = [
        row("fedsage", "no privacy", 0.9),
        row("local", "no collaboration", 0.6),
        *(row("fedsage", "budget", 0.2, e, without_graph=WITHOUT, commonest_class=0.3) for e in (1.0, 8.0)),
        row("fedridge", "no privacy", 0.85),
        *(row("fedridge", "budget", 0.7, e, **{**new, **of_owners}) for e in (1.0, 8.0)),
    ]
    value = {"schema": "secure-fedgraph/compare/1", "config": {"data": "cora", "unit": "node"}}
    story = compare_story(CompareResult.model_validate({**value, "seeds": [0], "points": points}))
    return story.told


def test_every_line_is_named_once(told: dict[str, Any]) -> None:
    printed = " ".join(re.findall(r">([^<>]+)</text>", told["opening"].curve.svg))
    for label in ("distributed_dp, no graph", "FedRidge, distributed_dp, personal", "no privacy, at best",
                  "owners alone", "commonest class"):  # fmt: skip
        assert printed.count(label) == 1 + label.startswith("distributed"), (label, printed)


def test_the_smallest_budget_that_is_worth_spending_is_the_one_that_is_marked(told: dict[str, Any]) -> None:
    opening = told["opening"]
    assert opening.sentence == (
        "FedRidge at ε = 1 for one node is worth spending: it is. The shared model scores 70.0\u202f% "
        "(accuracy on all test data), owners alone score 60.0\u202f% "
        "and without privacy it scores 85.0\u202f%."
    )
    assert "Marked: FedRidge at ε = 1: 70.0" in opening.curve.alt
    scored, budget = opening.figures
    assert (scored.state, budget.figure) == ("nothing", "ε = 1")
    assert "61.0\u202f% same ε, without a graph" in scored.lines
    assert budget.lines[-1] == "One client's epsilon is unbounded: it is."  # where the first one stands


def test_where_no_owner_trains_alone_in_the_comparison_the_scores_beside_those_of_runs_are_told() -> None:
    auc = {"accuracy": {"auc": 0.75}, "measure": "auc", "commonest_class": 0.7, "alone": {"auc": 0.71}}
    points = [row("fedridge", "budget", 0.0, 4.0, **auc)]
    value = {"schema": "secure-fedgraph/compare/1", "config": {"data": "silos", "unit": "node"}}
    shown = compare_story(CompareResult.model_validate({**value, "seeds": [0], "points": points})).told[
        "opening"
    ]
    assert "owners alone 0.710" in shown.curve.svg and "commonest" not in shown.curve.svg
    assert "0.710 owners alone" in shown.figures[0].lines


@pytest.mark.parametrize(
    ("worth", "epsilon", "state"),
    [("Worth spending: so.", "ε = 1", "nothing"), ("Undecided: so.", "ε = 8", "plain"),
     ("Not worth spending: so.", "ε = 8", "plain"), ("", "ε = 8", "plain")],
)  # fmt: skip
def test_the_best_score_is_marked_where_no_budget_is_worth_it(worth: str, epsilon: str, state: str) -> None:
    rows = [row("fedridge", "budget", 0.5 + e / 100, e, worth=worth) for e in (1.0, 8.0)]
    opening = compare_opening(result_parts.points(rows), "global", "node")
    assert (opening.figures[1].figure, opening.figures[0].state) == (epsilon, state)


def test_a_shared_model_below_owners_alone_is_not_praised() -> None:
    """What gains there is personal models, and the sentence says so."""
    rows = [row("local", "no collaboration", 0.6),
            row("fedridge", "budget", 0.2, 8.0, worth="Undecided: personal models' accuracy.")]  # fmt: skip
    told = compare_opening(result_parts.points(rows), "global", "node").sentence
    assert told.startswith(
        "Whether FedRidge at ε = 8 for one node is worth spending is open after one seed: personal"
    )
    assert told.endswith("and owners alone score 60.0\u202f%.")


def test_of_errors_the_smallest_is_the_best() -> None:
    rows = [row("fedridge", "budget", 0.0, e, accuracy={"mae": e / 10}) for e in (1.0, 8.0)]
    opening = compare_opening(result_parts.points(rows), "mae", "node")
    assert (opening.figures[0].figure, opening.figures[1].figure) == ("0.100", "ε = 1")


def test_each_budget_stands_beside_what_it_is_measured_against(told: dict[str, Any]) -> None:
    table = told["beside"]
    cells = dict(zip(table.heads, table.rows[-1], strict=True))
    assert cells == {
        "point": "FedRidge, distributed_dp", "ε": "8", "shared model": "0.7000",
        "same budget, no graph": "0.6100", "no privacy": "0.8500", "alone": "0.6000",
        "commonest class": "0.3000", "personal models": "0.8000", "own only": "0.7500",
    }  # fmt: skip
    assert [len(told[key]) for key in ("without_graph", "larger_units", "worth")] == [1, 1, 2]
    assert "FedSage" in told["without_graph"][0] and "FedRidge" in told["larger_units"][0]
