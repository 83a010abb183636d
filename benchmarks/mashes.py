"""What node-level rules cost FedEgo on Cora: the plain algorithm, each rule, and their noise beside it.

    python benchmarks/mashes.py [--seeds 2] [--rounds 20] [--out runs/mashes] [--table] [--json]

Every row is a run of five overlapping owners (label_skew, as in the paper), so a node lies with up to five of
them and its noise is five times what one owner's node needs. A seed that is finished is not run again. 20
rounds, not the paper's 200. Learning rates and clips were chosen on seed 0 and by test accuracy, which no
budget here counts.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from resumable import run_once

from secure_fedgraph.experiment.config import Experiment

SUMMED: dict[str, Any] = {"mash": "across"}
FROZEN = {**SUMMED, "reduction": "frozen", "learning_rate": 0.003}
# R4 alone: secret batches, and the averaged reduction, as in the paper
FROZEN_ALONE = {**FROZEN, "batching": "secret", "profile": "paper"}
RULES = {**FROZEN, "caps": [1, 1], "clip": 3.0}
# batches of training are as large as mashes, so there are fewer of them in an epoch
LARGE = {**RULES, "batch": 256, "mashes": 3, "epochs": 20}
EGO = {
    "network": "ego",
    "hidden": [512, 512],
    "fanout": [6, 6],
    "batch": 32,
    "epochs": 5,
    "share": 0.2,
    "dropout": 0.5,
    "learning_rate": 0.0003,
}
RULED = {"algorithm": "fedego-node"}
NODE = {**RULED, "unit": "node", "epsilon": 8.0}
ROWS: dict[str, dict[str, Any]] = {
    "every owner alone": {"algorithm": "local", "training": EGO},
    "plain": {},
    "mashes summed over owners": {"training": SUMMED},
    "and a frozen reduction (R4)": {"algorithm": "fedego-released", "training": FROZEN_ALONE},
    "and R1 to R3, one release, n = 32": {**RULED, "training": {**RULES, "mashes": 16}},
    "and R1 to R3, one release, n = 256": {**RULED, "training": LARGE},
    "the same at epsilon 8, distributed_dp": {"policy": "distributed_dp", "training": LARGE, **NODE},
    "the same at epsilon 8, local_dp": {"policy": "local_dp", "training": LARGE, **NODE},
    "at epsilon 8, fan-out 3, 2": {
        "policy": "distributed_dp",
        "training": {**LARGE, "fanout": [3, 2]},
        **NODE,
    },
    "at epsilon 8, at most 4 places filled": {
        "policy": "distributed_dp",
        "training": {**LARGE, "filled": 4},
        **NODE,
    },
    "at epsilon 8, nothing mixed in": {
        "policy": "distributed_dp",
        "training": {**LARGE, "mixing": 0.0001},
        **NODE,
    },
}


def experiment(name: str, seed: int, rounds: int) -> Experiment:
    """One row's, for a seed."""
    base = {"algorithm": "fedego", "data": "cora", "clients": 5, "policy": "plaintext", "rounds": rounds}
    return Experiment(**{**base, "partition": "label_skew", "seed": seed, **ROWS[name]})


def slug(name: str) -> str:
    """A row's folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def table(out: Path, seeds: int) -> list[dict[str, Any]]:
    """What is finished, one row a point."""
    rows = []
    for name in ROWS:
        paths = [out / slug(name) / f"seed-{seed}" / "result.json" for seed in range(seeds)]
        found = [json.loads(path.read_text()) for path in paths if path.is_file()]
        if not found:
            continue
        scores = {k: [r["accuracy"][k] for r in found] for k in ("global", "local")}
        budget = found[0].get("budget") or {}
        rows.append(
            {
                "name": name,
                "seeds": len(found),
                "epsilon": found[0]["privacy"].get("node", {}).get("epsilon", "inf"),
                "holders": found[0]["privacy"].get("node", {}).get("holders", 1),
                "multiplier": max(
                    (c["multiplier"] for c in budget.get("channels", {}).values()), default=0.0
                ),
                **{k: fmean(v) for k, v in scores.items()},
                **{f"{k} std": stdev(v) if len(v) > 1 else 0.0 for k, v in scores.items()},
                "best global on test": fmean(r["accuracy"]["best_on_test"]["global"] for r in found),
            }
        )
    return rows


def main() -> None:
    """Runs what is missing, and prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/mashes"))
    parser.add_argument("--table", action="store_true", help="what is finished, running nothing")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for seed in () if args.table else range(args.seeds):
        for name in ROWS:
            command = f"python benchmarks/mashes.py --seeds {args.seeds} --rounds {args.rounds}"
            folder = args.out / slug(name) / f"seed-{seed}"
            run_once(experiment(name, seed, args.rounds), folder, name, command)
    rows = table(args.out, args.seeds)
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    for r in rows:
        scores = " | ".join(f"{r[k]:.3f} ± {r[f'{k} std']:.3f}" for k in ("global", "local"))
        print(f"| {r['name']} | {r['epsilon']} | {r['multiplier']:.2f} | {scores} | {r['seeds']} |")


if __name__ == "__main__":
    main()
