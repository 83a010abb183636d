"""How long attacks take and how far they get, by the size of the batch, on Cora.

    python benchmarks/attack_costs.py [--only b4,c2,b7,b8] [--seed 0] [--json]

b4: members of FedEgo's kept mashes of n ego-graphs among all of Cora, five rounds of 64 units (share found at
one false positive in a hundred). c2: rows of FedSage+'s answers to n nodes (share exact). b7 and b8 are the
measured failures of ``attack_negatives.py``. Seconds are the attack's alone, on this machine, one thread with
OMP_NUM_THREADS=1. An attack that is added here is a function in ``MEASURES`` that yields rows.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attack_negatives

from secure_fedgraph.attacks import Attack, GeneratorBatch, MashDictionary, MashFilter
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid.attacked import KeepReadChannels
from secure_fedgraph.audits.surfaces.registry import JUDGES, knowledge
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute

Row = Mapping[str, Any]
EXCHANGE = {"minimum_batch": 1, "generator_epochs": 2, "federated_epochs": 1}


def run(algorithm: str, settings: Mapping[str, Any], seed: int, attack: type[Attack]) -> FinishedRun:
    """A plaintext run on Cora with what the attack reads kept."""
    changes = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    chosen = load(
        None, {"algorithm": algorithm, "data": "cora", "policy": "plaintext", "seed": seed}, changes
    )
    return FinishedRun.of(execute(chosen, None, keep=KeepReadChannels([attack])), seed)


def row(case: FinishedRun, attack: Attack, name: str, size: int) -> Row:
    """One attack's score and seconds."""
    granted, view = knowledge(attack, case), case.transcript.view("server")
    started = time.perf_counter()
    guess = attack.run(view, granted)
    seconds = time.perf_counter() - started
    score = JUDGES[guess.about](guess, case).score
    parts = score.details.get("mashes") or len(guess.targets)
    return {
        "attack": name,
        "n": size,
        "metric": score.metric,
        "value": round(score.value, 3),
        "low": round(score.low, 3),
        "high": round(score.high, 3),
        "baseline": round(score.baseline, 3),
        "seconds": round(seconds, 2),
        "seconds_each": round(seconds / parts, 2),
    }


def b4(seed: int) -> Iterator[Row]:
    """The dictionary and, beside it, the matched filter, by the nodes in a mash."""
    for n in (8, 16, 32, 64):
        settings = {**MashDictionary.controls[0].settings, "training.batch": n}
        case = run("fedego", settings, seed, MashDictionary)
        yield row(case, MashDictionary(), "b4", n)
        yield row(case, MashFilter(), "b5", n)


def c2(seed: int) -> Iterator[Row]:
    """The separation of a NeighGen gradient, by the nodes in an exchange."""
    for n in (2, 4, 8, 16, 32):
        settings = {f"training.{k}": v for k, v in EXCHANGE.items()}
        settings |= {"rounds": 1, "training.exchange_batch": n}
        yield row(run("fedsage+", settings, seed, GeneratorBatch), GeneratorBatch(), "c2", n)


MEASURES: dict[str, Callable[[int], Iterator[Row]]] = {
    "b4": b4,
    "c2": c2,
    "b7": attack_negatives.b7,
    "b8": attack_negatives.b8,
}


def main() -> None:
    """Prints a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(MEASURES), help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for name in args.only.split(","):
        for one in MEASURES[name](args.seed):
            found.append(one)
            if not args.json:
                print("| " + " | ".join(f"{key} {value}" for key, value in one.items()) + " |", flush=True)
    if args.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
