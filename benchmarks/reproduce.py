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

from resumable import run_once

from secure_fedgraph.experiment.config import Experiment, load

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


def _gcn(data: str, hops: int) -> dict[str, Any]:
    split = {"algorithm": "fedgcn", "data": data, "clients": 5, "partition": "label_skew", "rounds": 200}
    return {**split, "training": {"hops": hops}}


def _glasu(algorithm: str, data: str, clients: int = 3, rounds: int = 32, **training: Any) -> dict[str, Any]:
    wide = {} if data == "cora" else {"hidden": 256}
    settings = {**wide, **training}
    return {"algorithm": algorithm, "data": data, "clients": clients, "rounds": rounds, "training": settings}


def _tracked(algorithm: str, data: str, rounds: int = 100, **training: Any) -> dict[str, Any]:
    if data == "ciao":
        training = {"local_steps": 5, "learning_rate": 0.03, **training}
    return {"algorithm": algorithm, "data": data, "rounds": rounds, "training": training}


FOUR = {"local_steps": 4, "backward": "local", "steps": 8}
"""A quarter of the joint inferences, and as many updates."""
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
    Case("graphfl cora", (0.739, 0.861), None, 2, _ego("graphfl", "cora")),
    Case("d-fedgnn cora", (0.776, 0.954), None, 2, _ego("d-fedgnn", "cora")),
    Case(
        "d-fedgnn cora before mixing",
        (float("nan"), None),
        None,
        2,
        _ego("d-fedgnn", "cora", scored="before_mixing"),
    ),
    Case("fedgcn cora hops=0", (float("nan"), None), None, 4, _gcn("cora", 0)),
    Case("fedgcn cora hops=1", (float("nan"), None), None, 4, _gcn("cora", 1)),
    Case("fedgcn cora hops=2", (float("nan"), None), None, 4, _gcn("cora", 2)),
    Case("fedego citeseer", (0.727, 0.920), (0.695, 0.89), 2, _ego("fedego", "citeseer")),
    Case("fedavg citeseer", (0.701, 0.917), None, 2, _ego("fedavg", "citeseer")),
    Case("fedego cora lambda=0 (E6)", (0.7705, 0.9345), None, 1, _ego("fedego", "cora", mixing=0)),
    Case("fedego cora lambda=0.5 (E6)", (0.7843, 0.9585), None, 1, _ego("fedego", "cora", mixing=0.5)),
    Case("fedego cora lambda=1 (E6)", (0.7921, 0.9535), None, 1, _ego("fedego", "cora", mixing=1)),
    Case("glasu cora Q=1 (G3)", (0.810, None), (0.785, None), 2, _glasu("glasu", "cora")),
    Case("glasu cora Q=4 (G3)", (0.803, None), None, 2, _glasu("glasu", "cora", **FOUR)),
    Case("glasu-standalone cora (G3)", (0.746, None), None, 2, _glasu("glasu-standalone", "cora")),
    Case("glasu-simulated cora (G3)", (0.801, None), (0.776, None), 2, _glasu("glasu-simulated", "cora")),
    Case(
        "glasu-centralized cora (G3)", (0.810, None), None, 2, _glasu("glasu-centralized", "cora", fanout=5)
    ),
    Case("glasu pubmed K=2 (G5)", (0.838, None), (0.813, None), 1, _glasu("glasu", "pubmed", rounds=64)),
    Case(
        "glasu pubmed K=4 (G5)",
        (0.825, None),
        (0.800, None),
        1,
        _glasu("glasu", "pubmed", rounds=64, aggregated=[1, 2, 3, 4]),
    ),
    Case("glasu citeseer M=7 (G6)", (0.694, None), (0.669, None), 2, _glasu("glasu", "citeseer", 7)),
    Case(
        "glasu-centralized citeseer (G6)",
        (0.702, None),
        (0.677, None),
        2,
        _glasu("glasu-centralized", "citeseer", 7, fanout=5),
    ),
    Case("apfl bbbp (A2)", (0.749, None), None, 3, _tracked("apfl", "bbbp")),
    Case("fedgate bbbp (A2)", (0.770, None), None, 3, _tracked("fedgate", "bbbp")),
    Case("apflgate bbbp (A2)", (0.848, None), (0.79, None), 3, _tracked("apflgate", "bbbp")),
    Case("apfl ciao (A3)", (0.8054, None), None, 3, _tracked("apfl", "ciao")),
    Case("fedgate ciao (A3)", (0.8055, None), None, 3, _tracked("fedgate", "ciao")),
    Case("apflgate ciao (A3)", (0.7891, None), (0.80, None), 3, _tracked("apflgate", "ciao")),
    Case(
        "apflgate ciao without habits (A3)",
        (0.7891, None),
        None,
        1,
        _tracked("apflgate", "ciao", habits=False, loss="mse"),
    ),
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


LOWER_IS_BETTER = ("mae",)
PAIRS = (
    ("fedego cora (E3)", "fedavg cora (E4)"),
    ("fedego citeseer", "fedavg citeseer"),
    ("glasu cora Q=1 (G3)", "glasu cora Q=4 (G3)"),
    ("glasu cora Q=1 (G3)", "glasu-standalone cora (G3)"),
    ("apflgate bbbp (A2)", "apfl bbbp (A2)"),
    ("apflgate bbbp (A2)", "fedgate bbbp (A2)"),
    ("apflgate ciao (A3)", "apfl ciao (A3)"),
    ("apflgate ciao (A3)", "fedgate ciao (A3)"),
)
"""Whose difference is reported, seed by seed: both had the same data, partition and seeds."""


def rows(cases: list[Case], out: Path) -> Iterator[dict[str, Any]]:
    """What is finished, case by case, in the measure of its paper."""
    for case in cases:
        found = []
        for seed in range(case.seeds):
            path = folder_of(case, seed, out) / "result.json"
            if path.is_file():
                found.append(json.loads(path.read_text()))
        if found:
            yield _row(case, found)


def _row(case: Case, found: list[dict[str, Any]]) -> dict[str, Any]:
    metric = found[0].get("metric", "accuracy")
    head = "global" if metric == "accuracy" else metric
    row: dict[str, Any] = {"name": case.name, "seeds": len(found), "of": case.seeds, "measure": head}
    for which in WHICH:
        scores = [r["accuracy"] if which == "last" else r["accuracy"].get(which) or {} for r in found]
        for key in (head, "local"):
            values = [s[key] for s in scores if key in s]
            row[f"{which}_{key}"] = fmean(values) if len(values) == len(found) else None
            if which == "best_on_test":
                row[f"std_{key}"] = stdev(values) if len(values) > 1 else 0.0
    row["others"] = {
        key: fmean([r["accuracy"][key] for r in found])
        for key, value in found[0]["accuracy"].items()
        if isinstance(value, float) and key not in (head, "local")
    }
    row["each"] = {
        r["seed"]: (r["accuracy"].get("best_on_test") or {}).get(head, float("nan")) for r in found
    }
    row["paper"] = [None if p is None or p != p else p for p in case.paper]
    row["least"] = case.least
    row["reached"] = case.least is None or all(
        least is None or _reaches(row[f"best_on_test_{key}"], least, head)
        for key, least in zip((head, "local"), case.least, strict=True)
    )
    row["megabytes_up"] = {c["name"]: c["bytes_up"] / 2**20 for c in found[0]["channels"]}
    row["seconds"] = fmean(r["seconds"] for r in found)
    return row


def _reaches(value: float | None, least: float, measure: str) -> bool:
    if value is None:
        return False
    return value <= least if measure in LOWER_IS_BETTER else value >= least


WHICH = ("last", "best_by_validation", "best_on_test")


def table(found: list[dict[str, Any]]) -> Any:
    """As printed."""
    from rich.table import Table

    made = Table(title="accuracy (AUC, MAE) / local accuracy, mean over seeds (std of best on test)")
    for column in ("case", "seeds", *(w.replace("_", " ") for w in WHICH), "std", "paper", "asked", "s"):
        made.add_column(column)
    for row in found:
        head = row["measure"]
        both = [_pair((row[f"{which}_{head}"], row[f"{which}_local"])) for which in WHICH]
        asked = ""
        if row["least"] is not None:
            asked = f"{_pair(row['least'])} {'reached' if row['reached'] else 'MISSED'}"
        std = _pair((row[f"std_{head}"], row["std_local"]))
        seeds = f"{row['seeds']} of {row['of']}"
        made.add_row(row["name"], seeds, *both, std, _pair(row["paper"]), asked, f"{row['seconds']:.0f}")
    return made


def differences(found: list[dict[str, Any]]) -> Iterator[str]:
    """The mean differences of :data:`PAIRS`, with 95 % intervals by Student's t over the seeds of both."""
    from scipy.stats import t as student

    known = {row["name"]: row for row in found}
    for one, other in PAIRS:
        if one not in known or other not in known:
            continue
        measure = known[one]["measure"]
        mine, theirs = (known[name]["each"] for name in (one, other))
        gaps = [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]
        if len(gaps) < 2:
            continue
        half = float(student.ppf(0.975, len(gaps) - 1)) * stdev(gaps) / len(gaps) ** 0.5
        yield (
            f"{one} less {other}: {measure} {fmean(gaps):+.4f} "
            f"[{fmean(gaps) - half:+.4f}, {fmean(gaps) + half:+.4f}] over {len(gaps)} seeds, best on test"
        )


def _pair(values: Any) -> str:
    return " / ".join("-" if value is None else f"{value:.4f}" for value in values)


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
                    where = folder_of(case, seed, given.out)
                    run_once(experiment_of(case, seed), where, case.name, "benchmarks/reproduce.py")
    found = list(rows(cases, given.out))
    if given.json:
        print(json.dumps({"rows": found, "differences": list(differences(found))}))
        return
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(table(found))
    for line in differences(found):
        console.print(line, highlight=False, markup=False)


if __name__ == "__main__":
    main()
