"""Why FairGraphFL's global model ends below FedAvg's, part by part, and the settings with which it does not.

    python benchmarks/last_rounds.py [--data proteins] [--first 0] [--seeds 5] [--rounds 200]
                                     [--only fedavg,paper] [--out runs/last-rounds] [--table | --json]

Ten agents with graphs of one quality. A score is the mean of the global model's accuracy over the last twenty
rounds, since the global test set is small and a single round is noise; differences are to FedAvg of the same
seed. A run that is finished is not made again, and one that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from resumable import run_once

from secure_fedgraph.experiment.config import Experiment, load

LAST = 20
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("gin-fedavg", {}),
    "paper": ("fairgraphfl", {}),
    "whole gradient to all, no prototypes": ("fairgraphfl", {"sparse": False, "prototypes": "none"}),
    "the same, weights by size": (
        "fairgraphfl",
        {"sparse": False, "prototypes": "none", "weighting": "size"},
    ),
    "paper, weights by size": ("fairgraphfl", {"weighting": "size"}),
    "paper, weights by size, no prototypes": ("fairgraphfl", {"weighting": "size", "prototypes": "none"}),
}
"""Row -> algorithm and its settings. What an agent earns is by value in all of them."""


def experiment_of(row: str, data: str, seed: int, rounds: int) -> Experiment:
    """One run."""
    algorithm, training = ROWS[row]
    config = {
        "algorithm": algorithm,
        "data": data,
        "clients": 10,
        "partition": "random",
        "policy": "plaintext",
        "rounds": rounds,
        "seed": seed,
        "training": training,
    }
    return load(None, config, [])


def folder_of(out: Path, row: str, data: str, rounds: int, seed: int) -> Path:
    """Where a run is kept."""
    return out / f"{data}-{rounds}" / row.replace(",", "").replace(" ", "-") / f"seed-{seed}"


def scores_of(out: Path, row: str, data: str, rounds: int, seeds: range) -> dict[int, tuple[float, float]]:
    """Seed -> (global, personal) accuracy over the last rounds, of the runs that are finished."""
    found = {}
    for seed in seeds:
        path = folder_of(out, row, data, rounds, seed) / "result.json"
        if path.is_file():
            last = [one["accuracy"] for one in json.loads(path.read_text())["rounds"][-LAST:]]
            found[seed] = (fmean(one["global"] for one in last), fmean(one["local"] for one in last))
    return found


def rows(out: Path, data: str, rounds: int, seeds: range) -> Iterator[dict[str, Any]]:
    """What is finished: means, and the difference to FedAvg over the seeds that both have."""
    beside = scores_of(out, "fedavg", data, rounds, seeds)
    for row in ROWS:
        found = scores_of(out, row, data, rounds, seeds)
        if not found:
            continue
        apart = [found[seed][0] - beside[seed][0] for seed in found if seed in beside]
        error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else None
        yield {
            "row": row,
            "seeds": len(found),
            "global": fmean(one[0] for one in found.values()),
            "personal": fmean(one[1] for one in found.values()),
            "difference": fmean(apart) if apart else None,
            "error": error,
        }


def main() -> None:
    """Reads the options, runs what is missing, prints the table."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--data", default="proteins")
    asked.add_argument("--first", type=int, default=0)
    asked.add_argument("--seeds", type=int, default=5)
    asked.add_argument("--rounds", type=int, default=200)
    asked.add_argument("--only", default="", help="rows, by commas; all by default")
    asked.add_argument("--out", type=Path, default=Path("runs/last-rounds"))
    asked.add_argument("--table", action="store_true", help="print what is finished, and run nothing")
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    chosen = [row for row in ROWS if not given.only or row in given.only.split(",")]
    if not chosen:
        raise SystemExit(f"--only {given.only}: no row is named so; they are {'; '.join(ROWS)}")
    seeds = range(given.first, given.first + given.seeds)
    if not given.table:
        for seed in seeds:
            for row in chosen:
                experiment = experiment_of(row, given.data, seed, given.rounds)
                folder = folder_of(given.out, row, given.data, given.rounds, seed)
                run_once(experiment, folder, row, f"benchmarks/last_rounds.py, {row}")
    table = list(rows(given.out, given.data, given.rounds, seeds))
    if given.json:
        print(json.dumps(table, indent=1))
        return
    print("| | seeds | global | personal | difference to FedAvg |\n|---|---|---|---|---|")
    for one in table:
        apart = "" if one["difference"] is None else f"{one['difference']:+.3f}"
        error = "" if one["error"] is None else f" ± {one['error']:.3f}"
        scores = f"{one['global']:.3f} | {one['personal']:.3f}"
        print(f"| {one['row']} | {one['seeds']} | {scores} | {apart}{error} |")


if __name__ == "__main__":
    main()
