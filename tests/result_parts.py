"""Parts of result files as the report has them, from the few keys that a test is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.audit import Cell, Conformance, NotRun, Reconstruction
from secure_fedgraph.experiment.schema.compare import Point
from secure_fedgraph.experiment.schema.run import RoundReport
from secure_fedgraph.report.sections.trained import Trained

Json = Mapping[str, Any]
MEASURED = {"accuracy": {}, "spent": 0.0, "seeds": 1, "bytes": 0, "seconds": 0.0}
POINT = {"name": "a", "kind": "budget", "algorithm": "fedsage", "policy": "masked", "unit": "client",
         "epsilon": 1.0, "outcome": "ran"}  # fmt: skip


def cell(value: Json) -> Cell:
    return Cell.model_validate({"adversary": "server", **value})


def cells(values: Iterable[Json]) -> list[Cell]:
    return [cell(value) for value in values]


def not_run(values: Iterable[Json]) -> list[NotRun]:
    return [NotRun.model_validate(value) for value in values]


def conformance(values: Iterable[Json]) -> list[Conformance]:
    return [Conformance.model_validate(value) for value in values]


def guess(value: Json) -> Reconstruction:
    blank = {"policy": "plaintext", "attack": "a1", "aim": "each owner", "variant": "as configured"}
    return Reconstruction.model_validate({**blank, "kind": "vocabulary", **value})


def guesses(values: Iterable[Json]) -> list[Reconstruction]:
    return [guess(value) for value in values]


def points(values: Iterable[Json]) -> list[Point]:
    return [Point.model_validate({**POINT, **MEASURED, **value}) for value in values]


def result(value: Json) -> RunResult:
    return RunResult.model_validate(
        {"schema": "secure-fedgraph/run/1", "config": {}, "accuracy": {}, **value}
    )


def trained(label: str, results: Iterable[Json], histories: Iterable[Iterable[Json]] = ()) -> Trained:
    """Runs that differ in nothing but the seed, with the rounds of each of them."""
    rounds = [[RoundReport.model_validate(row) for row in history] for history in histories]
    return Trained(label, [result(value) for value in results], rounds)
