"""A page says in words when a model is no better than a guess, or than what owners have alone."""

from __future__ import annotations

import pytest
from test_report_page import run_json

from secure_fedgraph.experiment.schema import RunResult, as_read
from secure_fedgraph.report.cautions import no_better_than
from secure_fedgraph.report.first_screens.run import beside, worse_than
from secure_fedgraph.report.measures import MEASURES, measure_of


def made(score: float, alone: float | None = None, **accuracy: float) -> RunResult:
    value = {**run_json(), "accuracy": {"global": score, **accuracy}, "commonest_class": 0.3, "metrics": {}}
    value["baselines"] = {"commonest": 0.3, "alone": {"best": alone, "paper": None, "metrics": {}}}
    return as_read(RunResult, value)


@pytest.mark.parametrize(
    ("score", "said"),
    [(0.2, "commonest class"), (0.3, "commonest class"), (0.5, "owners do alone"), (0.8, "")],
)
def test_what_it_is_no_better_than_is_named(score: float, said: str) -> None:
    told = no_better_than(made(score, alone=0.7))
    assert (said in told) and bool(told) is bool(said)


def test_an_owners_model_without_the_released_one_is_named() -> None:
    result = made(0.5, own_global=0.7)
    assert "own model" in worse_than(result, measure_of(result))


def test_beside_an_auc_the_accuracy_that_is_no_better_is_told_too() -> None:
    figures = {name: {"global": 0.25, "low": 0.2, "high": 0.3} for name in ("auc", "accuracy")}
    value = {**run_json(), "headline": "auc", "metrics": figures, "commonest_class": 0.3}
    told = no_better_than(as_read(RunResult, value))
    assert told.startswith("in accuracy (25.0%) no better than always naming the commonest class (30.0%)")


def test_auc_is_compared_with_auc() -> None:
    figure = {"global": 0.75, "low": 0.7, "high": 0.8}
    value = {**run_json(), "headline": "auc", "metrics": {"auc": figure}, "commonest_class": None}
    value["baselines"] = {"commonest": None, "alone": {"best": 0.8, "paper": None, "metrics": {}}}
    assert "0.800" in no_better_than(as_read(RunResult, value))


def test_owners_alone_are_measured_on_the_same_test_items() -> None:
    figure = {"global": 0.753, "low": 0.73, "high": 0.77}
    value = {**run_json(), "headline": "auc", "metrics": {"auc": figure}, "commonest_class": None}
    alone = {"best": 0.756, "paper": None, "metrics": {"auc": 0.746}}  # a mean over owners, and all together
    value["baselines"] = {"commonest": None, "alone": alone}
    value["accuracy"]["own_global"] = 0.775
    result = as_read(RunResult, value)
    assert no_better_than(result) == ""
    assert ("0.746", "owners alone, each by the best of its own models") in beside(result, MEASURES["auc"])
    own = "an owner’s own model, on all test data (accuracy)"
    assert ("77.5\u202f%", own) in beside(result, MEASURES["auc"])
    alone["metrics"]["auc"] = 0.808
    assert "owners do alone (0.808)" in no_better_than(as_read(RunResult, value))
