"""The first screen of a run's page: what the server read, what noise bounds, what a score stands beside."""

from __future__ import annotations

from typing import Any

import pytest
from test_report_page import run_json

from secure_fedgraph.experiment.schema import RunResult, as_read
from secure_fedgraph.report.first_screens.run import bound, first_screen, seen_by_server, worse_than
from secure_fedgraph.report.measures import measure_of
from secure_fedgraph.report.sections.learning import accuracy
from secure_fedgraph.report.sections.trained import Trained


def result(uploads: int = 6, singly: int = 0, epsilon: Any = "inf", **changes: Any) -> RunResult:
    value = run_json(epsilon=epsilon)
    value["channels"][0] |= {"uploads": uploads, "read_singly": singly}
    return as_read(RunResult, {**value, **changes})


@pytest.mark.parametrize(
    ("singly", "epsilon", "state"),
    [(0, "inf", "nothing"), (6, "inf", "leaks"), (2, "inf", "leaks"), (6, 1.9, "nothing")],
)
def test_single_uploads_without_noise_are_what_leaks(singly: int, epsilon: Any, state: str) -> None:
    seen = seen_by_server(result(singly=singly, epsilon=epsilon))
    assert (seen.state, seen.figure) == (state, f"{singly} of 6")
    assert f"read {singly} of 6 single uploads" in str(
        first_screen(result(singly=singly), "FedSage")["sentence"]
    )


@pytest.mark.parametrize(("accountant", "too_little"), [("none", False), ("exact-gaussian", True)])
def test_noise_that_is_too_little_is_not_called_none(accountant: str, too_little: bool) -> None:
    claim = {**run_json()["privacy"]["client"], "epsilon": "inf", "accountant": accountant}
    found = result(singly=6, privacy={"client": claim, "node": claim})
    seen, screen = seen_by_server(found), first_screen(found, "FedSage")
    assert (seen.noised, seen.too_little) == (False, too_little)
    assert ("without noise" in seen.rest) is not too_little
    assert ("No noise was added" in str(screen["unbounded"])) is not too_little


def test_what_referees_and_peers_read_is_none_of_the_servers() -> None:
    value = run_json()
    scores = {**value["channels"][0], "name": "metrics", "to": "referee", "uploads": 4, "read_singly": 4}
    value["channels"] = [{**value["channels"][0], "uploads": 6, "read_singly": 0}, scores]
    assert seen_by_server(as_read(RunResult, value)).uploads == 6


def test_an_older_file_tells_of_no_uploads() -> None:
    older = as_read(RunResult, run_json())
    assert seen_by_server(older).uploads is None
    assert "single uploads" not in str(first_screen(older, "FedSage")["sentence"])


def test_the_budgets_unit_comes_first_and_a_links_zero_is_no_bound_of_noise() -> None:
    claim = run_json()["privacy"]["client"]
    privacy = {"edge": {**claim, "epsilon": 0.0}, "node": {**claim, "epsilon": 2.0}, "client": claim}
    found = bound(result(privacy=privacy))
    assert found.unit == "one node"
    assert bound(result(privacy={"edge": {**claim, "epsilon": 0.0}})).epsilon is None


def test_owners_who_score_at_home_have_their_own_score_in_the_sentence() -> None:
    told = first_screen(result(accuracy={"local": 0.4167}), "FedSage")
    assert "scores 41.7" in str(told["sentence"]) and "own test data" in str(told["sentence"])


def test_a_share_in_single_precision_is_the_share_itself() -> None:
    alike = result(accuracy={"global": 4 / 15, "local": 0.3}, commonest_class=0.2666666805744171)
    assert "commonest class" in worse_than(alike, measure_of(alike))


def test_one_round_is_no_curve_and_stands_in_the_table() -> None:
    value = as_read(RunResult, run_json())
    both = accuracy([Trained("masked", [value], [value.rounds])])
    one = accuracy([Trained("masked", [value], [value.rounds[:1]])])
    assert both is not None and one is not None
    assert (len(both.pictures), one.pictures, len(one.rows)) == (2, [], 1)
