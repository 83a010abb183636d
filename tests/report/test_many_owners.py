"""With a hundred owners a page and a terminal stay short, and every owner is one click away."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from result_parts import result, trained
from rich.console import Console
from test_report_page import build, run_json, text_of

from secure_fedgraph.cli.tables import run_tables
from secure_fedgraph.report.sections.learning import accuracy
from secure_fedgraph.report.sections.run_page import each_owner
from secure_fedgraph.report.text import spread

SCORES = {f"owner-{i:03}": (i + 1) / 200 for i in range(200)}


def many(owners: dict[str, float] = SCORES) -> dict[str, Any]:
    value = run_json(weights="w", notes={}, metric="accuracy", budget=None, plan=None)
    value["data"]["partition"] |= {"owners": len(owners), "sizes": [10 + i for i in range(len(owners))]}
    value["rounds"][-1]["owners"] = dict(owners)
    return value


def test_every_owner_has_a_row() -> None:
    value = many({"owner-0": 0.5, "owner-1": 0.7})
    found = each_owner(trained("masked", [value], [value["rounds"]]))
    assert found is not None and found["heads"] == ["owner", "nodes", "last round"]
    assert found["rows"] == [["owner-0", "10", "50.0\u202f%"], ["owner-1", "11", "70.0\u202f%"]]


def test_owners_scores_are_accuracies_beside_an_area_under_the_curve() -> None:
    value = many({"owner-0": 0.5, "owner-1": 0.7})
    value |= {"metric": "auc", "headline": "auc"}
    value["accuracy"]["auc"] = 0.75
    run = trained("masked", [value], [value["rounds"]])
    found = each_owner(run)
    assert found is not None and found["heads"] == ["owner", "nodes", "accuracy last round"]
    assert found["rows"][1] == ["owner-1", "11", "70.0\u202f%"]
    assert "own test data: accuracy lowest 50.0" in str(found["summary"])
    learned = accuracy([run])
    assert learned is not None and learned.last.startswith("ROC-AUC")
    assert learned.title == "accuracy on all test data"  # rounds have no other


def test_a_page_of_two_hundred_owners(tmp_path: Path) -> None:
    page = build(tmp_path, many())
    text = text_of(page)
    told = "200 owners on their own test data: lowest 0.5\u202f% (owner-000), median 50.2\u202f%"
    assert " ".join(told.split()) in text and "highest 100.0" in text
    assert "All 200 owners" in text
    assert page.count("owner-199") == 2  # the highest, in the sentence; and in the table of all
    assert "10 to 209, median 109.5" in text
    assert len(page) < 500_000


def test_a_terminal_of_two_hundred_owners() -> None:
    console = Console(width=80, record=True, file=StringIO())
    for table in run_tables(result(many())):
        console.print(table)
    text = " ".join(console.export_text().split())
    assert "200 owners: lowest 0.0050 (owner-000), median 0.5025, highest 1.0000 (owner-199)" in text
    assert "Channel `update` shows more than it declares: the server sees every single upload" in text
    assert "owner-100" not in text


def test_many_sizes_are_told_in_few_words() -> None:
    assert spread(range(24)).startswith("0, 1, 2") and spread(range(25)) == "0 to 24, median 12"
    assert spread([]) == "" and spread([None, "x", 4]) == "4"
