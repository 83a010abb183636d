"""Accuracy under privacy, side by side: algorithms x policies x budgets x seeds, resumable, on all cores."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from scipy.stats import t as student

from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.config import Experiment
from secure_fedgraph.errors import SecureFedGraphError
from secure_fedgraph.results import begin, execute, finish, run_result, versions, write_json

NO_PRIVACY, ALONE, NOISED, SILENT = "no privacy", "no collaboration", "budget", "as configured"
EVERY = 10
"""Rounds from checkpoint to checkpoint: two hundred clients that keep their memories after each are slow."""
Leaks = Callable[[dict[str, Any]], dict[str, float | str]]
"""An experiment's configuration -> attack -> what it scored, or why it did not."""


@dataclass(frozen=True)
class Point:
    """One algorithm under one policy and one budget.

    Args:
        kind: why it is there: a budget, a policy as configured, or one of the two baselines.
        algorithm, policy: names.
        epsilon: the budget; None where there is none.
        config: the whole experiment, but for the seed.
    """

    kind: str
    algorithm: str
    policy: str
    epsilon: float | None
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What its folder is called."""
        budget = "" if self.epsilon is None else f"-{self.epsilon:g}"
        return f"{self.algorithm}-{self.policy}{budget}".replace("+", "plus")

    def experiment(self, seed: int) -> Experiment:
        """With one seed."""
        return Experiment(**{**self.config, "seed": seed})


def points(
    base: Experiment, algorithms: Sequence[str], policies: Sequence[str], epsilons: Sequence[float]
) -> list[Point]:
    """Every point, the two baselines of each algorithm among them.

    Every algorithm runs on the same data, partition and seeds. An infinite epsilon is the baseline without
    privacy. A policy without noise has one point at client level, whatever the budgets.
    """
    found: dict[str, Point] = {}

    def add(kind: str, experiment: Experiment) -> None:
        config = experiment.model_dump(mode="json")
        point = Point(kind, experiment.algorithm, experiment.policy, experiment.epsilon, config)
        found.setdefault(point.name, point)

    for algorithm in algorithms:
        mine = base.model_copy(update={"algorithm": algorithm, "epsilon": None})
        mine.make_algorithm()
        drawn: dict[str, Any] = dict.fromkeys(("links", "labels", "features"))
        bare: dict[str, Any] = {"protection": {}, "steps": {}, **drawn, "policy": "plaintext"}
        add(NO_PRIVACY, mine.model_copy(update=bare))
        alone = ALGORITHMS[ALGORITHMS[algorithm].alone]
        if base.partition in alone.partitions:
            settings = {k: v for k, v in mine.training.items() if k in alone.Settings.model_fields}
            add(ALONE, mine.model_copy(update={**bare, "algorithm": alone.name, "training": settings}))
        for policy in policies:
            budgets: list[float | None] = [e for e in epsilons if math.isfinite(e)]
            for epsilon in budgets or [None]:
                under = mine.model_copy(update={"epsilon": epsilon}).under(policy)
                add(SILENT if under.epsilon is None else NOISED, under)
    return list(found.values())


def compare(
    chosen: Sequence[Point],
    seeds: Sequence[int],
    out: Path,
    progress: Callable[[str], None] = lambda text: None,
    leaks: Leaks | None = None,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Runs what is not finished, and gives every point's row.

    A run that was stopped goes on from its last checkpoint, or begins anew where it adds noise; one that was
    refused says why.

    Args:
        leaks: what attacks score under a point, on its first seed.
        workers: processes; as many as there are cores by default.
    """
    workers = workers or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_alone_on_its_core) as pool:
        jobs = {
            pool.submit(
                run_point, point.experiment(seed).model_dump(mode="json"), _folder(out, point, seed)
            ): (f"{point.name}, seed {seed}")
            for seed in seeds
            for point in chosen
        }
        if leaks is not None:
            for point in chosen:
                config = point.experiment(seeds[0]).model_dump(mode="json")
                jobs[pool.submit(_leak, leaks, config, out / "runs" / point.name / "leak.json")] = (
                    f"{point.name}, attacks"
                )
        for done in as_completed(jobs):
            done.result()
            progress(jobs[done])
    rows = [row for point in chosen if (row := _row(point, seeds, out))]
    alone = next((r for r in rows if r["kind"] == ALONE and r["outcome"] == "ran"), None)
    return [row | gains(row, alone) for row in rows]


def run_point(config: dict[str, Any], folder: Path) -> None:
    """One run, unless it is finished; in a process of its own."""
    if (folder / "result.json").is_file() or (folder / "refused.json").is_file():
        return
    experiment = Experiment(**config)
    # A run with noise that is killed inside a round has paid for that round, and a budget that is planned to
    # the last round has no room to pay twice; its noise cannot be drawn again either. So it begins anew, and
    # keeps nothing on the way; but where its ledger is shared with others, what it paid stays paid.
    shared = experiment.ledger is not None
    whole = experiment.adds_noise and not shared
    every = experiment.checkpoint_every if shared else EVERY
    if whole:
        shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left in plaintext is a column of the table
        try:
            run = execute(
                experiment.model_copy(update={"checkpoint_every": every}),
                None if whole and experiment.transcript != "full" else folder,
                checkpoints=not whole,
                on_start=lambda: begin(folder, experiment, [experiment.seed], "compare"),
            )
        except SecureFedGraphError as error:
            write_json(folder / "refused.json", {"reason": str(error), "class": type(error).__name__})
            return
    write_json(folder / "result.json", run_result(run, experiment))
    finish(folder)


def _leak(leaks: Leaks, config: dict[str, Any], path: Path) -> None:
    if not path.is_file():
        write_json(path, leaks(config))


def _alone_on_its_core() -> None:
    torch.set_num_threads(1)


def _folder(out: Path, point: Point, seed: int) -> Path:
    return out / "runs" / point.name / f"seed-{seed}"


def _row(point: Point, seeds: Sequence[int], out: Path) -> dict[str, Any]:
    """A point's means over seeds."""
    row: dict[str, Any] = {
        "name": point.name,
        "kind": point.kind,
        "algorithm": point.algorithm,
        "policy": point.policy,
        "unit": point.config["unit"],
        "epsilon": "inf" if point.epsilon is None else point.epsilon,
    }
    refused = _read(out, point, seeds, "refused.json")
    if refused:
        return {**row, "outcome": "refused", "reason": next(iter(refused.values()))["reason"], "seeds": 0}
    found = _read(out, point, seeds, "result.json")
    if not found:
        return {}
    results = list(found.values())
    keys = [k for k, v in results[0]["accuracy"].items() if isinstance(v, float)]
    scores = {key: [r["accuracy"][key] for r in results if key in r["accuracy"]] for key in keys}
    told = results[0]["privacy"].get(point.config["unit"], {})
    leak = out / "runs" / point.name / "leak.json"
    return {
        **row,
        "outcome": "ran",
        "spent": max(_number(r["privacy"].get(row["unit"], {}).get("epsilon", "inf")) for r in results),
        "accountant": told.get("accountant", ""),
        "computational": told.get("computational", False),
        "measure": results[0]["metric"],
        "accuracy": {key: fmean(values) for key, values in scores.items()},
        "std": {key: stdev(values) if len(values) > 1 else 0.0 for key, values in scores.items()},
        "interval": {key: _interval(values) for key, values in scores.items()},
        "seeds": len(results),
        "each": [
            {"seed": seed, "accuracy": {k: r["accuracy"].get(k) for k in keys}} for seed, r in found.items()
        ],
        "bytes": round(fmean(r["bytes"]["up"] for r in results)),
        "seconds": round(fmean(r["seconds"] for r in results), 1),
        "leak": json.loads(leak.read_text()) if leak.is_file() else {},
    }


def _read(out: Path, point: Point, seeds: Sequence[int], name: str) -> dict[int, dict[str, Any]]:
    paths = {seed: _folder(out, point, seed) / name for seed in seeds}
    return {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.is_file()}


def _number(value: float | str) -> float | str:
    return value if isinstance(value, str) else float(value)


def _interval(values: Sequence[float]) -> list[float] | None:
    """The 95 % interval of a mean of few seeds, by Student's t; None for one seed."""
    if len(values) < 2:
        return None
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return [fmean(values) - half, fmean(values) + half]


def gains(row: Mapping[str, Any], alone: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a row has over every owner alone, seed by seed: mean and 95 % interval of the differences.

    Returns:
        ``over_alone``: measure -> ``mean`` and ``interval`` (None for one seed); errors count downwards.
    """
    if alone is None or row is alone or row["outcome"] != "ran":
        return {}
    others = {one["seed"]: one["accuracy"] for one in alone["each"]}
    found = {}
    for key in row["accuracy"]:
        sign = -1.0 if key == "mae" else 1.0
        pairs = [(one["accuracy"].get(key), others.get(one["seed"], {}).get(key)) for one in row["each"]]
        apart = [sign * (mine - other) for mine, other in pairs if mine is not None and other is not None]
        if apart:
            found[key] = {"mean": fmean(apart), "interval": _interval(apart)}
    return {"over_alone": found}


def pareto(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The points that no other beats in accuracy at a budget as small.

    >>> told = lambda name, e, a: {"name": name, "outcome": "ran", "epsilon": e, "accuracy": {"global": a}}
    >>> pareto([told("a", 1.0, 0.5), told("b", 2.0, 0.4), told("c", "inf", 0.9)])
    ['a', 'c']
    """
    ran = [(r["name"], float(r["epsilon"]), score_of(r)) for r in rows if r["outcome"] == "ran"]
    return [
        name
        for name, epsilon, score in ran
        if not any(
            e <= epsilon and s >= score and (e, s) != (epsilon, score) for other, e, s in ran if other != name
        )
    ]


def score_of(row: Mapping[str, Any]) -> float:
    """The score that a point is judged by: everybody's tests where there are any; lower errors are higher."""
    accuracy = row["accuracy"]
    key = next(k for k in ("global", "auc", "local", "mae", *accuracy) if k in accuracy)
    return -float(accuracy[key]) if key == "mae" else float(accuracy[key])


def compare_result(
    base: Experiment, rows: list[dict[str, Any]], seeds: Sequence[int], seconds: float, command: str
) -> dict[str, Any]:
    """The ``secure-fedgraph/compare/1`` object."""
    return {
        "schema": "secure-fedgraph/compare/1",
        "command": command,
        "config": base.model_dump(mode="json"),
        "versions": versions(),
        "seeds": list(seeds),
        "points": rows,
        "pareto": pareto(rows),
        "seconds": round(seconds, 1),
    }


def flat(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows for tables of other programs: one number a column."""
    for row in rows:
        plain = {k: v for k, v in row.items() if not isinstance(v, dict | list)}
        plain["epsilon"] = float(plain["epsilon"])
        if "spent" in plain:
            plain["spent"] = float(plain["spent"])
        for key in ("accuracy", "std", "leak"):
            plain |= {f"{key}_{name}": value for name, value in (row.get(key) or {}).items()}
        yield plain


def write_tables(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """``compare.csv`` and ``compare.parquet``."""
    import pandas

    found = list(flat(rows))
    heads = list(dict.fromkeys(key for row in found for key in row))
    with (out / "compare.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, heads)
        writer.writeheader()
        writer.writerows(found)
    table = pandas.DataFrame(found, columns=heads)
    mixed = [head for head in heads if table[head].map(type).nunique() > 1 and table[head].dtype == object]
    table[mixed] = table[mixed].astype(str)
    table.to_parquet(out / "compare.parquet", index=False)
