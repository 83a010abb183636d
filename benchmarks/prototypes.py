"""FedSage+ by released prototypes beside FedSage and the paper's exchange: accuracy, epsilon, bytes, seconds.

    python benchmarks/prototypes.py [--data cora] [--row fedsage,prototypes] [--first 0] [--seeds 3]
                                    [--rounds N] [--exchanged 20] [--out runs/prototypes] [--table | --json]

Rows, of one seed each and all under masks:

- ``fedsage``: without generated neighbours;
- ``prototypes``: ``training.feedback=prototypes`` without noise, so that only classes of 10 or more of an
  owner's training nodes are in the sums;
- ``noised``: the same with noise on the sums for a node's epsilon of 4, the classifier as before;
- ``released``: the whole run for a node's epsilon of 4 (``strictest``);
- ``exchange``: the paper's. ``--exchanged`` epochs of it are run; bytes and seconds of its warm-up are of as
  many, and the table has them by the paper's 20.

*Seconds* are processor seconds of the warm-up alone: what comes before the first round of FedSage. A run that
is finished is not made again; one that was stopped goes on from its last round. Nothing is chosen by these
figures: every row runs at its defaults.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from resumable import run_once

from secure_fedgraph.algorithms.fedsageplus import FedSagePlus
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import execute, make_federation, write_json
from secure_fedgraph.privacy.policies import policy_with_noise
from secure_fedgraph.running.planned_noise import Forecast

CLIENTS = {"cora": 3, "citeseer": 3, "pubmed": 5}
EPSILON, DELTA, EPOCHS = 4.0, 1e-5, 20
RELEASE = {"feedback": "prototypes"}
ROWS = ("fedsage", "prototypes", "noised", "released", "exchange")


def multiplier(experiment: Experiment) -> float:
    """The noise with which one release of sums keeps a node's epsilon, as the planner has it."""
    federation, algorithm = make_federation(experiment), experiment.make_algorithm()
    sums = [one for one in algorithm.in_use if one.name == FedSagePlus.FEATURE_SUMS.name]
    forecast = Forecast(algorithm, sums, federation.names, 1, Budget(EPSILON, DELTA, "node"))
    made = forecast.plan(lambda noises: policy_with_noise("distributed_dp", 1.0, noises))
    return made.multipliers[FedSagePlus.FEATURE_SUMS.name]


def experiment_of(row: str, data: str, seed: int, rounds: int | None, exchanged: int) -> Experiment:
    """One run."""
    config: dict[str, Any] = {
        "algorithm": "fedsage+",
        "data": data,
        "clients": CLIENTS[data],
        "policy": "masked",
        "seed": seed,
        "training": RELEASE,
        **({} if rounds is None else {"rounds": rounds}),
    }
    if row == "fedsage":
        config |= {"algorithm": "fedsage", "training": {}}
    elif row == "exchange":
        config["training"] = {"feedback": "parameters", "federated_epochs": exchanged}
    elif row == "released":
        config |= {"policy": "strictest", "unit": "node", "epsilon": EPSILON, "training": {}}
    elif row == "noised":
        noise = {FedSagePlus.FEATURE_SUMS.name: multiplier(load(None, config, []))}
        config |= {"policy": "strictest", "protection": {"norm": 1.0, "multiplier": noise}}
    return load(None, config, [])


def measure_warm_up(experiment: Experiment) -> dict[str, float]:
    """Processor seconds and bytes, both ways, of what comes before the first round of FedSage."""
    short, federation = experiment.model_copy(update={"rounds": 3}), make_federation(experiment)
    started, marks = time.process_time(), []
    # a round's note comes at its end, so what the first one takes is taken off as the second shows it
    # (the last also tests personal models)
    run = execute(short, None, lambda row: marks.append(time.process_time() - started), federation=federation)
    own = [s for s in run.transcript.sent if s.round <= run.algorithm.warm_up]
    return {
        "seconds": max(marks[0] - (marks[1] - marks[0]), 0.0),
        "up": float(sum(s.bytes for s in own if s.recipient == "server")),
        "down": float(sum(s.bytes for s in own if s.sender == "server")),
    }


def found(out: Path) -> Iterator[dict[str, Any]]:
    """What was measured: a row each."""
    for data in CLIENTS:
        for row in ROWS:
            folders = sorted((out / data / row).glob("seed-*"))
            results = [
                json.loads((f / "result.json").read_text()) for f in folders if (f / "result.json").is_file()
            ]
            warm = [
                json.loads((f / "warm_up.json").read_text())
                for f in folders
                if (f / "warm_up.json").is_file()
            ]
            if not results and not warm:
                continue
            spent = [
                one["epsilon"] for r in results for one in r["channels"] if one["name"] == "feature_sums"
            ]
            whole = [r["privacy"]["node"]["epsilon"] for r in results if "node" in r["privacy"]]
            yield {
                "name": f"{data} {row}",
                "data": data,
                "row": row,
                "seeds": len(results),
                "accuracy": fmean(r["accuracy"]["global"] for r in results) if results else None,
                "epsilon_of_sums": spent[0] if spent else None,
                "epsilon": whole[0] if whole else None,
                **({key: fmean(w[key] for w in warm) for key in ("seconds", "up", "down")} if warm else {}),
            }


def printed(rows: list[dict[str, Any]]) -> None:
    """The rows as a table, with ratios to the paper's exchange."""
    print(
        "| data | row | seeds | accuracy | node epsilon: sums, run | warm-up s | MB up | less s | less MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    paper = {r["data"]: r for r in rows if r["row"] == "exchange"}
    for r in rows:
        of, cells = paper.get(r["data"]), [r["data"], f"`{r['row']}`", str(r["seeds"])]
        cells.append("" if r["accuracy"] is None else f"{r['accuracy']:.4f}")
        cells.append(f"{r['epsilon_of_sums'] or '–'}, {r['epsilon'] or '–'}")
        if "seconds" in r:
            cells += [f"{r['seconds']:.1f}", f"{r['up'] / 1e6:.3f}"]
            if of is not None and "seconds" in of and r is not of:
                cells += [f"{of[key] / r[key]:.0f}" if r[key] else "–" for key in ("seconds", "up")]
        print("| " + " | ".join([*cells, *[""] * (9 - len(cells))]) + " |")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cora")
    parser.add_argument("--row", default=",".join(ROWS))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--exchanged", type=int, default=EPOCHS)
    parser.add_argument("--out", type=Path, default=Path("runs/prototypes"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not (asked.table or asked.json):
        for data in asked.data.split(","):
            for row in asked.row.split(","):
                for seed in range(asked.first, asked.first + asked.seeds):
                    folder = asked.out / data / row / f"seed-{seed}"
                    experiment = experiment_of(row, data, seed, asked.rounds, asked.exchanged)
                    whole = row != "exchange" or asked.exchanged == EPOCHS
                    folder.mkdir(parents=True, exist_ok=True)
                    if whole:
                        run_once(experiment, folder, f"{data} {row}", f"benchmarks/prototypes.py --row {row}")
                    if row != "fedsage" and not (folder / "warm_up.json").is_file():
                        warm = measure_warm_up(experiment)
                        scale = 1 if whole else EPOCHS / asked.exchanged
                        write_json(
                            folder / "warm_up.json", {key: scale * value for key, value in warm.items()}
                        )
    rows = list(found(asked.out))
    if asked.json:
        print(json.dumps({"rows": rows}))
    else:
        printed(rows)


if __name__ == "__main__":
    main()
