"""What a comparison says of each point: means over seeds, what was spent, what leaks, who beats whom."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from secure_fedgraph.experiment.compare.points import Point
from secure_fedgraph.experiment.pool import Failed
from secure_fedgraph.experiment.schema.compare import NOT_WORTH, UNDECIDED, WORTH
from secure_fedgraph.experiment.schema.larger_units import why_larger
from secure_fedgraph.loading import postponed

stats = postponed("scipy.stats")
RAN, REFUSED, FAILED = "ran", "refused", "failed"


def row_of(
    point: Point,
    outcomes: Mapping[int, Mapping[str, Any]],
    failed: Mapping[int, Failed],
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
    spent = _json(_most(results, unit))
    units = {one: _json(_most(results, one)) for one in results[0]["privacy"]}
    metrics = [one.get("metrics", {}) for one in results]
    alone = [((one.get("baselines") or {}).get("alone") or {}).get("metrics") or {} for one in results]
    guesses = [one["commonest_class"] for one in results if one.get("commonest_class") is not None]
    left_out = [{**note, "seed": seed} for seed, one in outcomes.items() for note in one.get("left_out", ())]
    return {
        **row,
        "epsilon": spent if point.epsilon is None else point.epsilon,
        "outcome": RAN,
        "spent": spent,
        "accountant": held.get("accountant", ""),
        "computational": held.get("computational", False),
        "units": units,
        "readers": {one: _by_reader(results, one) for one in units},
        "larger_units": why_larger(units, unit, held.get("holders", 1)),
        "form": results[0].get("form", {}),
        "measure": results[0]["metric"],
        "metrics": {
            name: {end: fmean(one[name][end] for one in metrics) for end in ("global", "low", "high")}
            for name in _shared(metrics)
        },
        "accuracy": {key: fmean(values) for key, values in scores.items()},
        "std": {key: stdev(values) if len(values) > 1 else 0.0 for key, values in scores.items()},
        "interval": {key: _interval(values) for key, values in scores.items()},
        "seeds": len(results),
        **({"commonest_class": fmean(guesses)} if guesses else {}),
        **(
            {"alone": {name: fmean(one[name] for one in alone) for name in _shared(alone)}}
            if any(alone)
            else {}
        ),
        "each": [
            {"seed": seed, "accuracy": {k: r["accuracy"].get(k) for k in keys}}
            for seed, r in outcomes.items()
        ],
        "bytes": round(fmean(r["bytes"]["up"] for r in results)),
        "seconds": round(fmean(r["seconds"] for r in results), 1),
        **({"cpu": round(fmean(r["cpu"] for r in results), 1)} if all("cpu" in r for r in results) else {}),
        **({"left_out": left_out} if left_out else {}),
        **{key: (leaks or {}).get(key, {}) for key in ("leak", "leaks")},
    }


def _shared(each: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names that all have."""
    return [name for name in each[0] if all(name in one for one in each)]


def by_one_metric(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same points with one metric at their head: that of most points, where all that ran have it.

    Which metric says most follows from the classes' shares, which noise may turn a little.
    """
    ran = [row for row in rows if row["outcome"] == RAN]
    asked = Counter(row["measure"] for row in ran).most_common(1)
    name = asked[0][0] if asked else ""
    if not name or not all(name in row["accuracy"] or name in row["metrics"] for row in ran):
        return rows
    for row in ran:
        row["measure"] = name
        if name != "accuracy" and name not in row["accuracy"]:
            row["accuracy"] = {**row["accuracy"], name: row["metrics"][name]["global"]}
            row["std"], row["interval"] = {**row["std"], name: 0.0}, {**row["interval"], name: None}
    return rows


def _most(results: Sequence[Mapping[str, Any]], unit: str) -> float:
    """The largest epsilon of a unit over all seeds."""
    return max(float(r["privacy"].get(unit, {}).get("epsilon", "inf")) for r in results)


def _by_reader(results: Sequence[Mapping[str, Any]], unit: str) -> dict[str, float | str]:
    """Reader -> the largest epsilon of a unit over all seeds."""
    found = [r["privacy"][unit].get("readers", {}) for r in results if unit in r["privacy"]]
    return {name: _json(max(float(one.get(name, "inf")) for one in found)) for name in found[0]}


def _json(epsilon: float) -> float | str:
    """JSON has no infinity."""
    return "inf" if math.isinf(epsilon) else epsilon


def _interval(values: Sequence[float]) -> list[float] | None:
    """The 95 % interval of a mean of few seeds, by Student's t; None for one seed."""
    if len(values) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    low, high = fmean(values) - half, fmean(values) + half
    shares = all(0 <= one <= 1 for one in values)  # what lies between 0 and 1 has no mean beyond
    return [max(low, 0.0), min(high, 1.0)] if shares else [low, high]


BESIDE = {"personal": "own", "personal_global": "own_global"}
"""Scores of personal models -> the scores of the same models without what was released."""
OF_OWNERS = {*BESIDE, *BESIDE.values()}
"""Scores of models that owners keep to themselves."""
IN_WORDS = {
    "global": "accuracy on all test data",
    "local": "accuracy on owners' own test data",
    "personal": "personal models' accuracy on owners' own test data",
    "personal_global": "personal models' accuracy on all test data",
}


def gains(row: Mapping[str, Any], alone: Mapping[str, Any] | None) -> dict[str, Any]:
    """How much better a row is than local training, seed by seed: mean and 95 % interval.

    Returns:
        ``over_alone``: measure -> ``mean`` and ``interval`` (None for one seed), above 0 if better, and
        ``seeds`` on which it is; personal models are measured against the same models without what was
        released. ``worth``, for a row with a budget: one sentence that says whether it is worth spending.
    """
    if alone is None or row is alone or row["outcome"] != RAN:
        return {}
    others = {one["seed"]: one["accuracy"] for one in alone["each"]}
    by_measure = {}
    for key in row["accuracy"]:
        beside = BESIDE.get(key, key)
        pairs = [
            (
                one["accuracy"].get(key),
                (one["accuracy"] if key in BESIDE else others.get(one["seed"], {})).get(beside),
            )
            for one in row["each"]
        ]
        if (gain := _gain(key, pairs)) is not None:
            by_measure[key] = gain
    worth = {} if row.get("budget") is None else {"worth": _worth(by_measure)}
    return {"over_alone": by_measure, **worth}


def _gain(key: str, pairs: Sequence[tuple[float | None, float | None]]) -> dict[str, Any] | None:
    """How much better the first of each pair is; None where no pair is whole."""
    sign = -1.0 if key.startswith("mae") else 1.0
    differences = [sign * (mine - other) for mine, other in pairs if mine is not None and other is not None]
    if not differences:
        return None
    above, of = sum(difference > 0 for difference in differences), len(differences)
    return {"mean": fmean(differences), "interval": _interval(differences), "seeds": [above, of]}


def beside_links(reference: Mapping[str, Any] | str) -> dict[str, Any]:
    """What the same budget is worth where nothing reads a link.

    Args:
        reference: the row of the same budget without a graph, or why there is none.

    Returns:
        ``without_graph``: the reference's scores, or the ``reason`` why it has none. Personal models are left
        out: they read their owner's links.
    """
    if isinstance(reference, str):
        return {"without_graph": {"reason": reference}}
    keys = ("name", "algorithm", "spent", "seeds", "reason", "class")
    told = {key: reference[key] for key in keys if key in reference}
    if reference["outcome"] == RAN:
        scores = reference["accuracy"].items()
        told["accuracy"] = {key: value for key, value in scores if key not in OF_OWNERS}
    return {"without_graph": told}


def _worth(by_measure: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether a budget is worth spending: by owners' personal models, else by the first score of IN_WORDS."""
    # own models may be better than local training already: what counts is what came with the budget
    key = next((one for one in (*BESIDE, *IN_WORDS, *by_measure) if one in by_measure), None)
    if key is None:
        return "Nothing to compare it with: local training has no score on the same data."
    gain = by_measure[key]
    (above, of), points = gain["seeds"], 100 * gain["mean"]
    than = "the owners' own models" if key in BESIDE else "local training"
    what = f"{IN_WORDS.get(key, key)} is above that of {than} on {above} of {of} seeds ({points:+.1f} points)"
    if not above:
        return f"{NOT_WORTH}: {what}."
    if gain["interval"] is not None and gain["interval"][0] > 0:
        return f"{WORTH}: {what}."
    chance = (
        "one seed cannot show whether that is chance" if of == 1 else "the gain's 95 % interval includes 0"
    )
    return f"{UNDECIDED}: {what}; {chance}."


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
    first = row.get("measure", "accuracy")
    key = next((k for k in (first, "global", "auc", "local", "mae", *accuracy) if k in accuracy), None)
    if key is None:
        return -math.inf
    return -float(accuracy[key]) if key in ("mae", "rmse", "brier") else float(accuracy[key])
