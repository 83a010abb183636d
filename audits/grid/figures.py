"""Figures of a finished run's result that follow from its rounds, its configuration and its data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secure_fedgraph.audits.conformance.rows import NOTHING, PASSED, row
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment import released
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import (
    ASKED,
    evaluation_entry,
    noise_to_signal,
    plan_rows,
    released_exactly,
)
from secure_fedgraph.protocol.transcript import NOTES
from secure_fedgraph.running.run import Run

MEND = "put a copy of result.json back, or run again with --set transcript=full"
ROUNDING = 1e-6
"""The share by which a figure may differ: the noise that it is made of is worked out from a plan's rows."""
ROUNDED_UP = 1e-4
"""How far apart the epsilons of a plan's rows may be, which are rounded up at the fourth digit."""
SHARES = ("accuracy", "auc")
"""Measures whose scores lie between 0 and 1."""

SAYS = {
    "asked": "the configuration is the one that was asked for",
    "notes": "the record's index holds the notes that were written while the run went on",
    "model": "the released model is the one that the result names",
}
"""Row of a file that a folder may lack -> what it holds where the file is there."""


def check_figures(path: Path, result: Mapping[str, Any], experiment: Experiment, run: Run) -> None:
    """Computes every figure again that follows from the rest of a result, and compares the two.

    Scores and losses of each round, times, versions, notes and the digest of the weights stand in no other
    file, so they are compared with nothing.

    Args:
        path: of the result.
        result: what it holds.
        experiment: the result's configuration.
        run: rebuilt from its folder, with the result's own rounds.

    Raises:
        BadInput: naming the first key that differs, and both values.
    """
    sampled = run.federation.referee.facts(run.accuracy.get("global")) if run.evaluation == "referee" else {}
    if run.evaluation == "referee":  # of own test items nobody else has the counts
        _check_same(
            path, "commonest_class", result["commonest_class"], run.federation.referee.commonest_class
        )
    counted = result.get("metrics") or {}
    metric = result.get("headline", run.algorithm.measure(run.federation.schema))
    headlined = {metric: counted[metric]["global"]} if metric in counted and metric != "accuracy" else {}
    exact = released_exactly(run, result["weights"] is not None, result.get("released") is not None)
    due = {
        "federated": not run.algorithm.pools,
        "data": dict(run.federation.facts),
        "evaluation": evaluation_entry(run.evaluation, run.evaluate_every, sampled),
        "metric": metric,
        "accuracy": {**run.accuracy, **headlined},
        "released_exactly": exact,
        "form": {key: result["config"]["training"].get(key) for key in result.get("form") or {}},
        "plan": plan_rows(run),  # before what is made of it
        "noise_to_signal": noise_to_signal(run),
    }
    for key, value in due.items():
        if key in result:  # older results lack some
            plain = json.loads(json.dumps(value, default=str))
            _check_same(path, key, result[key], plain, ROUNDED_UP if key == "plan" else 0.0)
    _check_budget(path, result, experiment, run)
    if due["metric"] in SHARES:
        for number, one in enumerate(result["rounds"], start=1):
            for place, score in _numbers(one.get("accuracy"), f"rounds.{number}.accuracy"):
                if not 0 <= score <= 1:
                    raise BadInput(f"{path}: {place} is {score}, and a share is from 0 to 1; {MEND}")


def _check_budget(path: Path, result: Mapping[str, Any], experiment: Experiment, run: Run) -> None:
    """What was asked for, and the deltas, against the configuration; what was spent is the ledger's."""
    asked = None if run.budget is None else {**asdict(run.budget), "planned": experiment.planned}
    said = result.get("budget")
    if asked is not None and isinstance(said, dict):
        said = {key: said.get(key) for key in asked}
    _check_same(path, "budget", said, json.loads(json.dumps(asked)))
    for unit, claim in result["privacy"].items():
        _check_same(path, f"privacy.{unit}.delta", claim.get("delta"), experiment.delta)


def _check_same(path: Path, place: str, said: object, due: object, apart: float = 0.0) -> None:
    if isinstance(said, dict) and isinstance(due, dict):
        for key in (*due, *(said.keys() - due.keys())):
            _check_same(path, f"{place}.{key}", said.get(key), due.get(key), apart)
    elif isinstance(said, list) and isinstance(due, list) and len(said) == len(due):
        for number, (one, other) in enumerate(zip(said, due, strict=True)):
            _check_same(path, f"{place}.{number}", one, other, apart)
    elif (
        isinstance(said, float)
        and isinstance(due, float)
        and math.isclose(said, due, rel_tol=ROUNDING, abs_tol=apart)
    ):
        return
    elif said != due:
        shown = (json.dumps(value, default=str)[:160] for value in (said, due))
        raise BadInput(
            f"{path}: {place} is {next(shown)}, and the run's data, configuration and rounds give "
            f"{next(shown)}; {MEND}"
        )


def _numbers(value: object, place: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _numbers(one, f"{place}.{key}")
    elif isinstance(value, int | float):
        yield place, value


def rows_of_files(folder: Path, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each file that a result and a record are compared with, and that a folder may lack.

    Returns:
        as :func:`~secure_fedgraph.audits.conformance.rows.conformance_rows`.
    """
    compared = {"asked": folder / "checkpoint" / ASKED, "notes": folder / "transcript" / NOTES}
    if result.get("released") is not None:
        compared["model"] = folder / released.NAME
    return [
        row(name, PASSED, [], SAYS)
        if files.size_of(path) is not None
        else {**row(name, NOTHING, [], SAYS), "reason": f"{path} is missing: nothing is compared with it"}
        for name, path in compared.items()
    ]
