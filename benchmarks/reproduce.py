"""The papers' figures beside ours: real data, several seeds, resumable.

    python benchmarks/reproduce.py [--only fedego] [--out runs/reproduce] [--list] [--table] [--json]

A seed that is finished is not run again, and one that was stopped goes on from its last round; so it can run
beside other work and be killed at any time. ``--table`` prints what is there and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from secure_fedgraph.config import Experiment, load
from secure_fedgraph.results import begin, execute, finish, run_result, write_json

Figure = tuple[float, float | None]
"""(global, local) as printed in a paper; None where it prints none."""


@dataclass(frozen=True)
class Case:
    """One line of a paper's table.

    Args:
        name: ``method data ...``; ``--only`` takes a part of it.
        paper: what the paper, or a stated secondary source, has.
        least: what ours has to reach, best on test over rounds as the papers' figures are.
        seeds: how many.
        config: the experiment.
    """

    name: str
    paper: Figure
    least: Figure | None
    seeds: int
    config: dict[str, Any] = field(repr=False)


def _sage(algorithm: str, data: str, clients: int) -> dict[str, Any]:
    return {"algorithm": algorithm, "data": data, "clients": clients}


EGO_MODEL = {
    "network": "ego",
    "hidden": [512, 512],
    "fanout": [6, 6],
    "learning_rate": 3e-4,
    "batch": 32,
    "epochs": 5,
    "share": 0.2,
}


def _ego(algorithm: str, data: str, rounds: int = 200, **training: Any) -> dict[str, Any]:
    split = {"local_share": 0.2, "local_tests": 300} if data == "dblp" else {}
    return {
        "algorithm": algorithm,
        "data": data,
        "clients": 10 if data == "dblp" else 5,
        "partition": "label_skew",
        "rounds": rounds,
        "split": split,
        "training": training if algorithm == "fedego" else {**EGO_MODEL, **training},
    }


CASES: tuple[Case, ...] = (
    Case("fedsage cora M=3", (0.8656, None), (0.8406, None), 2, _sage("fedsage", "cora", 3)),
    Case("fedsage+ cora M=3", (0.8686, None), (0.8436, None), 2, _sage("fedsage+", "cora", 3)),
    Case("fedsage citeseer M=3", (0.7241, None), (0.6941, None), 2, _sage("fedsage", "citeseer", 3)),
    Case("fedsage+ citeseer M=3 (S5)", (0.7454, None), (0.7154, None), 2, _sage("fedsage+", "citeseer", 3)),
    Case("fedsage pubmed M=5", (0.8696, None), (0.8546, None), 2, _sage("fedsage", "pubmed", 5)),
    Case("fedsage+ pubmed M=5 (S4)", (0.8755, None), (0.8605, None), 2, _sage("fedsage+", "pubmed", 5)),
    Case("fedego cora (E3)", (0.794, 0.959), (0.764, 0.925), 4, _ego("fedego", "cora")),
    Case("fedavg cora (E4)", (0.769, 0.952), None, 4, _ego("fedavg", "cora")),
    Case("local cora (E4)", (0.691, 0.851), None, 4, _ego("local", "cora")),
    Case("fedego citeseer", (0.727, 0.920), (0.695, 0.89), 2, _ego("fedego", "citeseer")),
    Case("fedavg citeseer", (0.701, 0.917), None, 2, _ego("fedavg", "citeseer")),
    Case("fedego cora lambda=0 (E6)", (0.7705, 0.9345), None, 1, _ego("fedego", "cora", mixing=0)),
    Case("fedego cora lambda=0.5 (E6)", (0.7843, 0.9585), None, 1, _ego("fedego", "cora", mixing=0.5)),
    Case("fedego cora lambda=1 (E6)", (0.7921, 0.9535), None, 1, _ego("fedego", "cora", mixing=1)),
    Case("fedego cora across", (0.794, 0.959), None, 1, _ego("fedego", "cora", mash="across")),
    Case("fedego dblp 60 rounds", (float("nan"), None), None, 1, _ego("fedego", "dblp", 60)),
    Case("fedavg dblp 60 rounds", (float("nan"), None), None, 1, _ego("fedavg", "dblp", 60)),
    Case("local dblp 60 rounds", (float("nan"), None), None, 1, _ego("local", "dblp", 60)),
)


def folder_of(case: Case, seed: int, out: Path) -> Path:
    """Where a seed of a case is kept."""
    words = "".join(c if c.isalnum() or c in "+." else "-" for c in case.name)
    return out / words / f"seed-{seed}"


def experiment_of(case: Case, seed: int) -> Experiment:
    """The experiment of one seed. Nothing protects it: these are the papers' own figures."""
    every = {"policy": "plaintext", "seed": seed, "checkpoint_every": 10}
    return load(None, {**case.config, **every}, [])


def run_seed(case: Case, seed: int, out: Path) -> None:
    """Runs a seed, or goes on with it, unless it is finished."""
    folder = folder_of(case, seed, out)
    if (folder / "result.json").is_file():
        return
    experiment = experiment_of(case, seed)

    def progress(row: dict[str, Any]) -> None:
        if sys.stderr.isatty():
            print(f"{case.name} seed {seed}: round {row['round']}", end="\r", file=sys.stderr)

    run = execute(
        experiment,
        folder,
        progress,
        checkpoints=True,
        on_start=lambda: begin(folder, experiment, [seed], "benchmarks/reproduce.py"),
    )
    write_json(folder / "result.json", run_result(run, experiment))
    finish(folder)


def rows(cases: list[Case], out: Path) -> Iterator[dict[str, Any]]:
    """What is finished, case by case."""
    for case in cases:
        found = []
        for seed in range(case.seeds):
            path = folder_of(case, seed, out) / "result.json"
            if path.is_file():
                found.append(json.loads(path.read_text()))
        if not found:
            continue
        row: dict[str, Any] = {"name": case.name, "seeds": len(found), "of": case.seeds}
        for which in ("last", "best_by_validation", "best_on_test"):
            for score in ("global", "local"):
                values = [(r["accuracy"] if which == "last" else r["accuracy"][which])[score] for r in found]
                row[f"{which}_{score}"] = fmean(values)
                if which == "best_on_test":
                    row[f"std_{score}"] = stdev(values) if len(values) > 1 else 0.0
        row["paper_global"], row["paper_local"] = (None if p != p else p for p in case.paper)
        row["reached"] = case.least is None or all(
            least is None or row[f"best_on_test_{score}"] >= least
            for score, least in zip(("global", "local"), case.least, strict=True)
        )
        row["least"] = case.least
        row["megabytes_up"] = {c["name"]: c["bytes_up"] / 2**20 for c in found[0]["channels"]}
        row["seconds"] = fmean(r["seconds"] for r in found)
        yield row


def table(found: list[dict[str, Any]]) -> Any:
    """As printed."""
    from rich.table import Table

    made = Table(title="global / local accuracy, mean over seeds (std of best on test)")
    for column in (
        "case",
        "seeds",
        "last",
        "best by validation",
        "best on test",
        "std",
        "paper",
        "at least",
        "s",
    ):
        made.add_column(column)
    for row in found:
        both = [
            f"{row[f'{which}_global']:.4f} / {row[f'{which}_local']:.4f}"
            for which in ("last", "best_by_validation", "best_on_test")
        ]
        paper = " / ".join(
            "-" if p is None else f"{p:.4f}" for p in (row["paper_global"], row["paper_local"])
        )
        least = "" if row["least"] is None else " / ".join("-" if p is None else f"{p}" for p in row["least"])
        verdict = "" if row["least"] is None else (" reached" if row["reached"] else " MISSED")
        std = f"{row['std_global']:.4f} / {row['std_local']:.4f}"
        seeds = f"{row['seeds']} of {row['of']}"
        made.add_row(row["name"], seeds, *both, std, paper, least + verdict, f"{row['seconds']:.0f}")
    return made


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", action="append", default=[], help="cases whose name holds this; repeatable")
    asked.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    asked.add_argument("--seeds", type=int, help="other than the cases' own number")
    asked.add_argument("--list", action="store_true", help="the cases, and nothing else")
    asked.add_argument("--table", action="store_true", help="what is finished, and run nothing")
    asked.add_argument("--json", action="store_true", help="one JSON object on stdout")
    given = asked.parse_args()
    cases = [c for c in CASES if not given.only or any(part in c.name for part in given.only)]
    if given.list:
        print("\n".join(case.name for case in cases))
        return
    if not given.table:
        for seed in range(max(case.seeds for case in cases) if given.seeds is None else given.seeds):
            for case in cases:  # one seed of everything first: an early look at all of it
                if seed < (given.seeds or case.seeds):
                    run_seed(case, seed, given.out)
    found = list(rows(cases, given.out))
    if given.json:
        print(json.dumps({"rows": found}))
        return
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 170).print(table(found))


if __name__ == "__main__":
    main()
