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


def of_auc(score: float, best: float | None, alone: float | None, accuracy: bool = False) -> RunResult:
    """A result whose headline is an AUC; ``best`` is a mean over owners, ``alone`` of all items together."""
    figure = {"global": score, "low": score - 0.05, "high": score + 0.05}
    value = {**run_json(), "headline": "auc", "metrics": {"auc": figure}, "commonest_class": None}
    metrics = {} if alone is None else {"auc": alone}
    value["baselines"] = {"commonest": None, "alone": {"best": best, "paper": None, "metrics": metrics}}
    value["accuracy"]["own_global"] = 0.775
    if accuracy:
        value |= {"metrics": {"auc": figure, "accuracy": figure}, "commonest_class": 0.3}
    return as_read(RunResult, value)


def test_beside_an_auc_the_accuracy_that_is_no_better_is_told_too() -> None:
    told = no_better_than(of_auc(0.25, None, None, accuracy=True))
    assert told.startswith("in accuracy (25.0%) no better than always naming the commonest class (30.0%)")


@pytest.mark.parametrize(
    ("score", "best", "alone", "words"),
    [(0.75, 0.8, None, "0.800"), (0.753, 0.756, 0.746, ""), (0.753, 0.756, 0.808, "owners do alone (0.808)")],
)
def test_auc_is_compared_with_auc_on_the_same_test_items(score, best, alone, words) -> None:
    told = no_better_than(of_auc(score, best, alone))
    assert words in told and bool(told) is bool(words)


def test_owners_alone_stand_beside_an_auc() -> None:
    rows = beside(of_auc(0.753, 0.756, 0.746), MEASURES["auc"])
    assert ("0.746", "owners alone, each by the best of its own models") in rows
    assert ("77.5\u202f%", "an owner’s own model, on all test data (accuracy)") in rows
