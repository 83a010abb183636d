"""The page of a comparison: one picture of all lines, and each budget beside what it is measured against."""

from __future__ import annotations

import re
from typing import Any

import pytest
import result_parts

from secure_fedgraph.experiment.schema import CompareResult
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
    new = {"without_graph": WITHOUT, "larger_units": why, "commonest_class": 0.3, "worth": "Worth spending."}
    points = [
        row("fedsage", "no privacy", 0.9),
        row("local", "no collaboration", 0.6),
        *(row("fedsage", "budget", 0.2, e, without_graph=WITHOUT, commonest_class=0.3) for e in (1.0, 8.0)),
        row("fedridge", "no privacy", 0.85),
        *(row("fedridge", "budget", 0.7, e, **{**new, **of_owners}) for e in (1.0, 8.0)),
    ]
    value = {"schema": "secure-fedgraph/compare/1", "config": {"data": "cora", "unit": "node"}}
    story = compare_story(CompareResult.model_validate({**value, "seeds": [0], "points": points}))
    return {"svg": story.pictures[0].svg, **story.told}


def test_one_picture_has_every_line_once(told: dict[str, Any]) -> None:
    printed = re.findall(r">([^<>]+)</text>", told["svg"])
    for label in ("FedSage, distributed_dp", "FedRidge, distributed_dp", "personal (own test data)", "∞",
                  "no privacy, at best", "no collaboration", "commonest class"):  # fmt: skip
        assert printed.count(label) == 1, (label, printed)


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
