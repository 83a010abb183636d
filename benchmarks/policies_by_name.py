"""Every family under every policy without noise, by name: what ran, in which form, with which accuracy.

    python benchmarks/policies_by_name.py [--algorithm glasu,fedego] [--policy masked] [--seeds 3] [--out DIR]
                                          [--rounds fedsage+=10,fedego=50] [--table | --json]

Runs the commands as a user types them, one after the other, each a process of its own:

    secure-fedgraph run --algorithm A --policy P --seed S --out DIR/A/P/seed-S

on each algorithm's default data, partition and clients. What is finished is not run again, so a call that
was stopped goes on with the same command; a refusal is kept as its sentence. ``--table`` runs nothing and
prints what there is. Rows under ``plaintext`` are the paper's form; the column "apart" is what a policy costs
against it, in points of accuracy. Ratios are to the algorithm's row under ``plaintext``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

ALGORITHMS = ("fedsage", "glasu", "apflgate", "fairgraphfl", "fedego", "fedsage+")
POLICIES = ("plaintext", "masked", "homomorphic", "strictest")
CELL = "cell.json"


def run_cell(folder: Path, algorithm: str, policy: str, seed: int, rounds: int | None) -> dict[str, Any]:
    """One command, or what it left before; its status, its first line, and what it measured."""
    note = folder / CELL
    if note.is_file():
        found: dict[str, Any] = json.loads(note.read_text())
        if found["rounds"] == rounds:
            return found
    asked = ["--algorithm", algorithm, "--policy", policy, "--seed", str(seed), "--out", str(folder)]
    asked += [] if rounds is None else ["--rounds", str(rounds)]
    command = [str(Path(sys.executable).with_name("secure-fedgraph")), "run", *asked]
    command += ["--overwrite"] if folder.exists() else []  # of a call that was stopped
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = done.stdout if done.returncode == 0 else done.stderr
    cell = {
        "algorithm": algorithm,
        "policy": policy,
        "seed": seed,
        "rounds": rounds,
        "command": " ".join(["secure-fedgraph run", *asked]),
        "status": done.returncode,
        "said": told.strip().splitlines()[0] if told.strip() else "",
        "wall": round(time.perf_counter() - started, 1),
        "cpu": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    }
    if done.returncode == 0:
        result = json.loads((folder / "result.json").read_text())
        for key in ("form", "form_why", "accuracy", "bytes", "metric"):
            cell[key] = result[key]
        cell["rounds_run"] = len(result["rounds"])
        cell["privacy"] = {unit: entry["epsilon"] for unit, entry in result["privacy"].items()}
    folder.mkdir(parents=True, exist_ok=True)
    draft = note.with_suffix(".draft")
    draft.write_text(json.dumps(cell, indent=1) + "\n")
    draft.replace(note)
    return cell


def kept(folder: Path) -> dict[str, Any] | None:
    """What an earlier call measured; None where nothing is there."""
    note = folder / CELL
    return json.loads(note.read_text()) if note.is_file() else None


def score(cell: dict[str, Any]) -> float:
    """What the algorithm's paper measures."""
    accuracy = cell["accuracy"]
    return float(next(accuracy[key] for key in ("auc", "global", "local") if key in accuracy))


def row_of(
    algorithm: str, policy: str, cells: list[dict[str, Any]], paper: list[dict[str, Any]]
) -> dict[str, Any]:
    """The means over seeds, or why there are none."""
    first = cells[0]
    row: dict[str, Any] = {"name": f"{algorithm} {policy}", "algorithm": algorithm, "policy": policy}
    row |= {
        "status": first["status"],
        "size": first.get("rounds_run", 0),
        "seeds": len(cells),
        "said": first["said"],
    }
    if first["status"]:
        return {**row, "form": None, "refusal": first["said"]}
    scores = [score(cell) for cell in cells]
    row |= {
        "form": first["form"],
        "metric": first["metric"],
        "accuracy": fmean(scores),
        "std": stdev(scores) if len(scores) > 1 else 0.0,
        "epsilon": first["privacy"].get("client"),
        "seconds": fmean(cell["cpu"] for cell in cells),
    }
    plain = {cell["seed"]: cell for cell in paper if not cell["status"]}
    pairs = [(cell, plain[cell["seed"]]) for cell in cells if cell["seed"] in plain]
    if pairs:
        row["apart"] = 100 * fmean(score(mine) - score(other) for mine, other in pairs)
        row["cpu_ratio"] = fmean(mine["cpu"] / other["cpu"] for mine, other in pairs)
        row["wall_ratio"] = fmean(mine["wall"] / other["wall"] for mine, other in pairs)
        row["bytes_ratio"] = fmean(
            mine["bytes"]["up"] / max(other["bytes"]["up"], 1) for mine, other in pairs
        )
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| algorithm | policy | form | rounds | accuracy | apart | CPU | bytes up |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        head = f"| `{row['algorithm']}` | `{row['policy']}` |"
        if row["status"]:
            reason = row["refusal"].rpartition("channel ")[
                2
            ]  # after the settings of the form that it is about
            lines.append(f"{head} refused ({row['status']}): channel {reason} | | | | | |")
            continue
        form = ", ".join(f"`{k}={str(v).lower()}`" for k, v in row["form"].items()) or "the paper's"
        apart = f"{row['apart']:+.1f}" if "apart" in row else ""
        ratios = [f"{row[key]:.1f}" if key in row else "" for key in ("cpu_ratio", "bytes_ratio")]
        accuracy = f"{row['accuracy']:.3f}" + (f" ± {row['std']:.3f}" if row["seeds"] > 1 else "")
        lines.append(f"{head} {form} | {row['size']} | {accuracy} | {apart} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def _rounds(text: str) -> dict[str, int]:
    """``8`` for all algorithms, or ``fedego=50,fedsage+=10``."""
    if not text:
        return {}
    if text.isdigit():
        return dict.fromkeys(ALGORITHMS, int(text))
    return {name: int(number) for name, _, number in (part.partition("=") for part in text.split(","))}


def main() -> None:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithm", default=",".join(ALGORITHMS))
    parser.add_argument("--policy", default=",".join(POLICIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=_rounds, default={}, help="a number, or one by algorithm")
    parser.add_argument("--out", type=Path, default=Path("policies_by_name"))
    parser.add_argument("--table", action="store_true", help="print what there is, run nothing")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    algorithms, policies = asked.algorithm.split(","), asked.policy.split(",")
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in range(asked.seeds):  # a whole table of one seed comes before the second seed
        for algorithm in algorithms:
            for policy in policies:
                folder = asked.out / algorithm.replace("+", "plus") / policy / f"seed-{seed}"
                rounds = asked.rounds.get(algorithm)
                cell = kept(folder) if asked.table else run_cell(folder, algorithm, policy, seed, rounds)
                if cell is None:
                    continue
                found.setdefault((algorithm, policy), []).append(cell)
                if not asked.table:
                    print(
                        f"{cell['wall']:8.1f} s  status {cell['status']}  {cell['said'][:140]}",
                        file=sys.stderr,
                    )
    rows = [
        row_of(*key, cells, found.get((key[0], "plaintext"), []))
        for key, cells in sorted_by(found, algorithms)
    ]
    print(json.dumps({"rows": rows}) if asked.json else table(rows))


def sorted_by(
    found: dict[tuple[str, str], list[dict[str, Any]]], algorithms: list[str]
) -> list[tuple[tuple[str, str], list[dict[str, Any]]]]:
    """In the order in which algorithms were named."""
    return sorted(found.items(), key=lambda one: algorithms.index(one[0][0]))


if __name__ == "__main__":
    main()
