"""FairGraphFL beside self-training and FedAvg: accuracy, model-gradient fairness, payoffs by quality.

    python benchmarks/fairness.py [--data proteins] [--first 0] [--seeds 3] [--rounds 200] [--clean]
                                  [--own-test 0.1] [--method fairgraphfl] [--set reading=add]
                                  [--out runs/fairness] [--table] [--json]

Every agent's links are rewired by its group of quality (low .5, medium .3, high .1; ``--clean``: none). A
seed that is finished is not run again, and one that was stopped goes on from its last round. ``--table``
prints what is there and runs nothing. Fairness is the correlation, over agents, of self-training and
federated accuracy on local tests: with ten graphs each its standard error is about 0.3. ``--own-test 0.3``
makes them larger.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from resumable import run_once

from secure_fedgraph.algorithms.fairgraphfl.fairness import correlation
from secure_fedgraph.audits import intervals
from secure_fedgraph.experiment.config import Experiment, load

ALONE = "gin-local"
METHODS = (ALONE, "gin-fedavg", "fairgraphfl")


def experiment_of(method: str, seed: int, given: argparse.Namespace) -> Experiment:
    """One run. Nothing protects it: these are the papers' own figures."""
    config = {
        "algorithm": method,
        "data": given.data,
        "policy": "plaintext",
        "rounds": given.rounds,
        "seed": seed,
        "checkpoint_every": 20,
        "split": {"perturbed": not given.clean, "own_test": given.own_test},
    }
    return load(None, config, [f"training.{one}" for one in given.set if method == "fairgraphfl"])


def folder_of(method: str, seed: int, given: argparse.Namespace) -> Path:
    """Where a run is kept: by everything that makes it another."""
    settings = "-".join(given.set) if method == "fairgraphfl" else ""
    words = [given.data, "clean" if given.clean else "perturbed", f"{given.own_test:g}", str(given.rounds)]
    return given.out / "-".join(words) / "-".join(filter(None, [method, settings])) / f"seed-{seed}"


def finished(method: str, given: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """Seed -> result of what is finished."""
    paths = {seed: folder_of(method, seed, given) / "result.json" for seed in seeds_of(given)}
    return {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.is_file()}


def seeds_of(given: argparse.Namespace) -> range:
    """The seeds that are asked for."""
    return range(given.first, given.first + given.seeds)


def spread(values: list[float]) -> tuple[float, float]:
    """The mean and its standard error, of those that are numbers."""
    found = [v for v in values if math.isfinite(v)]
    if not found:
        return math.nan, math.nan
    return fmean(found), stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan


def summary(given: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a method that has a finished seed."""
    alone, found = finished(ALONE, given), []
    for method in given.method or METHODS:
        results = finished(method, given)
        if not results:
            continue
        row: dict[str, Any] = {"method": method, "seeds": len(results)}
        for figure in ("local", "global"):
            row[figure] = spread([r["accuracy"][figure] for r in results.values()])
            row[f"best_{figure}"] = spread(
                [max(rnd["accuracy"][figure] for rnd in r["rounds"]) for r in results.values()]
            )
        both = [seed for seed in results if seed in alone and method != ALONE]
        each = [_fairness(alone[seed], results[seed]) for seed in both]
        row["fairness"] = spread([r for r, _ in each])
        row["fairness_error_of_one_seed"] = spread([error for _, error in each])[0]
        row["payoffs"] = _by_quality(list(results.values()))
        row["payoff_differences"] = _above(list(results.values()))
        row["seconds"] = fmean(r["seconds"] for r in results.values())
        found.append(row)
    return found


def _fairness(alone: dict[str, Any], together: dict[str, Any]) -> tuple[float, float]:
    first, second = (result["rounds"][-1]["owners"] for result in (alone, together))
    return correlation(list(first.values()), [second[name] for name in first])


def _by_quality(results: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Group -> mean payoff of its agents over all rounds, and its standard error over agents and seeds."""
    paid: dict[str, list[float]] = {}
    for result in results:
        notes, quality = result.get("notes") or {}, result["data"]["partition"].get("quality", {})
        for place, agent in enumerate(notes.get("agents", [])):
            mean = fmean(row[place] for row in notes["by_round"]["payoffs"])
            paid.setdefault(quality.get(agent, "all"), []).append(mean)
    return {group: spread(values) for group, values in paid.items()}


def _above(results: list[dict[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """How much more an agent of better quality is paid: mean over seeds, and its 95 % interval."""
    found: dict[str, list[float]] = {}
    for result in results:
        paid = {group: mean for group, (mean, _) in _by_quality([result]).items()}
        for better, worse in (("high", "medium"), ("medium", "low"), ("high", "low")):
            if better in paid and worse in paid:
                found.setdefault(f"{better} less {worse}", []).append(paid[better] - paid[worse])
    made: dict[str, tuple[float, float, float]] = {}
    for name, values in found.items():
        low, high = intervals.mean(values, 0.025)
        made[name] = (fmean(values), low, high)
    return made


def text(pair: tuple[float, float], digits: int = 3) -> str:
    """``mean ± standard error``; a dash where there is none."""
    mean, error = pair
    if not math.isfinite(mean):
        return "-"
    return f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if math.isfinite(error) else "")


def table(found: list[dict[str, Any]]) -> Any:
    """As printed."""
    from rich.table import Table

    columns = ("method", "seeds", "personal", "global", "best personal", "best global", "fairness")
    made = Table(title="last round, mean ± standard error over seeds (best: over rounds, on test)")
    for column in (*columns, "± of one seed", "mean payoff by quality", "s"):
        made.add_column(column)
    for row in found:
        payoffs = ", ".join(f"{group} {text(pair, 4)}" for group, pair in row["payoffs"].items())
        figures = [text(row[key]) for key in ("local", "global", "best_local", "best_global", "fairness")]
        one = text((row["fairness_error_of_one_seed"], math.nan))
        made.add_row(row["method"], str(row["seeds"]), *figures, one, payoffs or "-", f"{row['seconds']:.0f}")
    return made


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--data", default="proteins")
    asked.add_argument("--first", type=int, default=0, help="the first seed")
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--method", action="append", choices=METHODS, help="these alone; repeatable")
    asked.add_argument("--rounds", type=int, default=200)
    asked.add_argument("--clean", action="store_true", help="no link is rewired")
    asked.add_argument(
        "--own-test", type=float, default=0.1, help="share of an agent's graphs that it tests on"
    )
    asked.add_argument("--set", action="append", default=[], help="KEY=VALUE of fairgraphfl; repeatable")
    asked.add_argument("--out", type=Path, default=Path("runs/fairness"))
    asked.add_argument("--table", action="store_true", help="what is finished, and run nothing")
    asked.add_argument("--json", action="store_true", help="one JSON object on stdout")
    given = asked.parse_args()
    if not given.table:
        for seed in seeds_of(given):
            for method in given.method or METHODS:
                where = folder_of(method, seed, given)
                run_once(experiment_of(method, seed, given), where, method, "benchmarks/fairness.py")
    found = summary(given)
    if given.json:
        text_of = json.dumps({"rows": found})
        print(text_of.replace("NaN", "null"))  # no figure is a word, and JSON has none that is not a number
        return
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 190)
    console.print(table(found))
    for row in found:
        for name, (middle, low, high) in row["payoff_differences"].items():
            console.print(f"{row['method']}: {name} {middle:.4f} ({low:.4f} to {high:.4f}, 95 %, over seeds)")


if __name__ == "__main__":
    main()
