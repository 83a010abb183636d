"""Accuracy with a fifth of the clients dropping out at random steps, beside the same without drop-outs.

    python benchmarks/dropouts.py [--out runs/dropouts] [--only fedavg,glasu] [--seeds 0,1,2] [--table]

Ten clients under masks; every round two of them stop answering, each from a random step of a masked sum on,
and come back in the next. FairGraphFL's updates have to be read by the server, so there only its sums of
prototypes are masked, and lose clients. Cora for classifiers of nodes, PROTEINS for classifiers of graphs. A
score is the mean of the last five rounds'. Every run is a file of its own, and one that is there is not made
again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.experiment.results import write_json
from secure_fedgraph.policies import masked, strictest

CLIENTS, SHARE, LAST = 10, 0.2, 5


@dataclass(frozen=True)
class Case:
    """One algorithm's settings, small enough for two cores and large enough to learn."""

    data: str
    partition: str
    rounds: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    score: str = "global"
    split: Mapping[str, Any] = field(default_factory=dict)


NODES = {"hidden": (32, 32), "learning_rate": 0.01}
TRACKED = {"hidden": (32, 32), "local_steps": 5, "learning_rate": 0.1}
EGO: dict[str, Any] = {
    "hidden": (32, 32),
    "fanout": (3, 3),
    "batch": 8,
    "mash": "across",
    "mashes": 8,
    "server_epochs": 3,
    "learning_rate": 0.01,
}
VERTICAL: dict[str, Any] = {
    "backbone": "gcnii",
    "layers": 2,
    "aggregated": (1, 2),
    "hidden": 32,
    "sampler": "full",
    "steps": 10,
    "learning_rate": 2.0,
    "dropout": 0.0,
}
CASES = {
    "fedavg": Case("cora", "louvain", 30, NODES),
    "fedsage": Case("cora", "louvain", 30, {"learning_rate": 0.01}),
    "fedego": Case("cora", "label_skew", 15, EGO, "local", {"local_tests": 20}),
    "apfl": Case("cora", "louvain", 30, TRACKED, "local"),
    "apflgate": Case("cora", "louvain", 30, TRACKED, "local"),
    "gin-fedavg": Case("proteins", "random", 20, {"hidden": 32}),
    "glasu": Case("cora", "vertical", 20, VERTICAL),
    "fairgraphfl": Case("proteins", "random", 20, {"hidden": 32}),
}


def measure(name: str, case: Case, seed: int, share: float, rounds: int) -> dict[str, Any]:
    """One run."""
    started = time.perf_counter()
    federation = sfg.federate(case.data, CLIENTS, case.partition, seed, dict(case.split) or None)
    left = sfg.Dropouts(share=share, seed=seed) if share else None
    policy = strictest() if name == "fairgraphfl" else masked()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = sfg.train(
            ALGORITHMS[name](**case.settings), federation, policy, rounds=rounds, seed=seed, dropouts=left
        )
    scores = [row["accuracy"][case.score] for row in run.history]
    sums = [
        len(o.contributors) for o in run.transcript.opened if o.reader == "server" and len(o.contributors) > 1
    ]
    return {
        "score": fmean(scores[-LAST:]),
        "contributors": fmean(sums),
        "fewest": min(sums),
        "sums": len(sums),
        "seconds": round(time.perf_counter() - started, 1),
    }


def table(out: Path, only: list[str]) -> list[dict[str, Any]]:
    """A row an algorithm, of the runs that are there."""
    rows = []
    for name in only:
        both: dict[str, dict[int, dict[str, Any]]] = {"whole": {}, "dropped": {}}
        for path in sorted((out / name).glob("*.json")):
            kind, seed = path.stem.split("-")
            both[kind][int(seed)] = json.loads(path.read_text())
        seeds = sorted(both["whole"].keys() & both["dropped"].keys())
        if not seeds:
            continue
        whole, dropped = ([both[kind][s]["score"] for s in seeds] for kind in ("whole", "dropped"))
        noise = 2 * math.hypot(_deviation(whole), _deviation(dropped)) / math.sqrt(len(seeds))
        rows.append(
            {
                "algorithm": name,
                "data": CASES[name].data,
                "rounds": both["whole"][seeds[0]]["rounds"],
                "seeds": len(seeds),
                "without": round(fmean(whole), 4),
                "with": round(fmean(dropped), 4),
                "difference": round(fmean(dropped) - fmean(whole), 4),
                "noise": round(noise, 4) if len(seeds) > 1 else "-",
                "within": abs(fmean(dropped) - fmean(whole)) <= noise if len(seeds) > 1 else "-",
                "contributors": round(fmean(both["dropped"][s]["contributors"] for s in seeds), 2),
                "fewest": min(both["dropped"][s]["fewest"] for s in seeds),
            }
        )
    return rows


def _deviation(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    """Makes what is not there yet, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/dropouts"))
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rounds", type=int, help="instead of each algorithm's own number here")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    args = parser.parse_args()
    only = args.only.split(",")
    for seed in [] if args.table else map(int, args.seeds.split(",")):
        for name in only:
            for kind, share in (("whole", 0.0), ("dropped", SHARE)):
                path = args.out / name / f"{kind}-{seed}.json"
                if path.is_file():
                    continue
                rounds = args.rounds or CASES[name].rounds
                found = measure(name, CASES[name], seed, share, rounds)
                write_json(path, {**found, "algorithm": name, "seed": seed, "share": share, "rounds": rounds})
                print(f"{name} seed {seed} {kind}: {found}", file=sys.stderr, flush=True)
    rows = table(args.out, only)
    columns = list(rows[0]) if rows else []
    for row in [dict(zip(columns, columns, strict=True)), *rows]:
        print("".join(f"{row[column]!s:>14}" for column in columns))


if __name__ == "__main__":
    main()
