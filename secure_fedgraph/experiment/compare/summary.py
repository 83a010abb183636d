"""What a comparison says of each point: means over seeds, what was spent, what leaks, who beats whom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Protocol

from scipy.stats import t as student

from secure_fedgraph.experiment.compare.points import Point

RAN, REFUSED, FAILED = "ran", "refused", "failed"


class Failure(Protocol):
    """Why a run, or attacks, did not finish: a reason, and the error's class where there was one."""

    @property
    def reason(self) -> str:
        """One sentence."""
        ...

    @property
    def kind(self) -> str:
        """The error's class; empty where a process died."""
        ...


def row_of(
    point: Point,
    outcomes: Mapping[int, Mapping[str, Any]],
    failed: Mapping[int, Failure],
    leaks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A point's means over seeds, or why there are none.

    Args:
        outcomes: seed -> the run's result, or its refusal.
        failed: seed -> why a run did not finish.
        leaks: the attacks' results.
    """
    unit = point.config["unit"]
    row: dict[str, Any] = {
        "name": point.name,
        "kind": point.kind,
        "algorithm": point.algorithm,
        "policy": point.policy,
        "unit": unit,
        "epsilon": "inf" if point.epsilon is None else point.epsilon,
        "budget": point.epsilon,
    }
    refused = [one["reason"] for one in outcomes.values() if "reason" in one]
    if refused:
        return {**row, "outcome": REFUSED, "reason": refused[0], "seeds": 0}
    if failed:
        seed, why = next(iter(failed.items()))
        failure = {"reason": f"seed {seed}: {why.reason}", "class": why.kind}
        return {**row, "outcome": FAILED, **failure, "seeds": len(outcomes)}
    results = list(outcomes.values())
    keys = [k for k, v in results[0]["accuracy"].items() if isinstance(v, float)]
    scores = {key: [r["accuracy"][key] for r in results if key in r["accuracy"]] for key in keys}
    held = results[0]["privacy"].get(unit, {})
    spent = _json(max(float(r["privacy"].get(unit, {}).get("epsilon", "inf")) for r in results))
    return {
        **row,
        "epsilon": spent if point.epsilon is None else point.epsilon,
        "outcome": RAN,
        "spent": spent,
        "accountant": held.get("accountant", ""),
        "computational": held.get("computational", False),
        "form": results[0].get("form", {}),
        "measure": results[0]["metric"],
        "accuracy": {key: fmean(values) for key, values in scores.items()},
        "std": {key: stdev(values) if len(values) > 1 else 0.0 for key, values in scores.items()},
        "interval": {key: _interval(values) for key, values in scores.items()},
        "seeds": len(results),
        "each": [
            {"seed": seed, "accuracy": {k: r["accuracy"].get(k) for k in keys}}
            for seed, r in outcomes.items()
        ],
        "bytes": round(fmean(r["bytes"]["up"] for r in results)),
        "seconds": round(fmean(r["seconds"] for r in results), 1),
        **{"leak": {}, "leaks": {}, **(leaks or {})},
    }


def _json(epsilon: float) -> float | str:
    """JSON has no infinity."""
    return "inf" if math.isinf(epsilon) else epsilon


def _interval(values: Sequence[float]) -> list[float] | None:
    """The 95 % interval of a mean of few seeds, by Student's t; None for one seed."""
    if len(values) < 2:
        return None
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return [fmean(values) - half, fmean(values) + half]


def gains(row: Mapping[str, Any], alone: Mapping[str, Any] | None) -> dict[str, Any]:
    """How much better a row is than local training, seed by seed: mean and 95 % interval.

    Returns:
        ``over_alone``: measure -> ``mean`` and ``interval`` (None for one seed), above 0 if better.
    """
    if alone is None or row is alone or row["outcome"] != RAN:
        return {}
    others = {one["seed"]: one["accuracy"] for one in alone["each"]}
    by_measure = {}
    for key in row["accuracy"]:
        sign = -1.0 if key == "mae" else 1.0
        pairs = [(one["accuracy"].get(key), others.get(one["seed"], {}).get(key)) for one in row["each"]]
        differences = [
            sign * (mine - other) for mine, other in pairs if mine is not None and other is not None
        ]
        if differences:
            by_measure[key] = {"mean": fmean(differences), "interval": _interval(differences)}
    return {"over_alone": by_measure}


def pareto(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The points that no other point beats in accuracy at the same or a smaller epsilon.

    Epsilon is what was spent, not the budget: local training spends nothing.

    >>> row = lambda name, e, a: {"name": name, "outcome": "ran", "spent": e, "accuracy": {"global": a}}
    >>> pareto([row("a", 1.0, 0.5), row("b", 2.0, 0.4), row("c", "inf", 0.9)])
    ['a', 'c']
    """
    ran = [
        (r["name"], float(r.get("spent", r.get("epsilon"))), score_of(r)) for r in rows if r["outcome"] == RAN
    ]
    return [
        name
        for name, epsilon, score in ran
        if not any(
            e <= epsilon and s >= score and (e, s) != (epsilon, score) for other, e, s in ran if other != name
        )
    ]


def score_of(row: Mapping[str, Any]) -> float:
    """A point's score: on all test data where there are any. Errors are negated: higher is better."""
    accuracy = row["accuracy"]
    key = next(k for k in ("global", "auc", "local", "mae", *accuracy) if k in accuracy)
    return -float(accuracy[key]) if key == "mae" else float(accuracy[key])
