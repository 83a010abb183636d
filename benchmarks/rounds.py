"""Seconds and memory of a round under each policy, as ratios to plaintext in the same run.

    python benchmarks/rounds.py [--json] [--data cora] [--clients 3] [--rounds 8] [--repeats 3] [--case NAME]

Two cases: a round of FedSage, and a generator round of FedSage+ (15 million parameters, 58 MB a message on
Cora). The first round of every run (set-up, caches) is left out. CPU counts this process and its workers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import psutil

ROOT = Path(__file__).resolve().parent.parent
POLICIES = ("plaintext", "masked", "homomorphic")
CASES = ("fedsage", "fedsage+ generator")


def measure(case: str, policy: str, data: str, clients: int, rounds: int) -> dict[str, float]:
    """One run in this process."""
    import torch

    import secure_fedgraph as sfg

    torch.set_num_threads(1)  # two threads on a shared machine measure the neighbours
    federation = sfg.federate(data, clients=clients, seed=0)
    generates = case != "fedsage"
    algorithm = (
        sfg.FedSagePlus(generator_epochs=1, federated_epochs=rounds + 1) if generates else sfg.FedSage()
    )
    # rounds of the kind that is measured: FedSage+ pre-trains in its first
    first, last = (3, rounds + 2) if generates else (2, rounds + 1)
    wall, cpu = [], []
    kind = type(algorithm)
    inner = kind.round

    def timed(self: Any, round: Any, state: Any) -> Any:
        started = time.perf_counter(), _cpu()
        after = inner(self, round, state)
        if first <= round.number <= last:
            wall.append(time.perf_counter() - started[0])
            cpu.append(_cpu() - started[1])
        return after

    chosen = getattr(sfg.policies, policy)()
    with mock.patch.object(kind, "round", timed):  # on the class: a run trains a copy of the algorithm
        run = sfg.train(algorithm, federation, chosen, rounds=1 if generates else rounds + 1, seed=0)
    me = psutil.Process()
    memory = me.memory_info().rss + sum(child.memory_info().rss for child in me.children(recursive=True))
    up = sum(s.bytes for s in run.transcript.sent if s.recipient == "server" and first <= s.round <= last)
    return {"wall": median(wall), "cpu": median(cpu), "bytes": up / rounds, "memory": memory / 1e6}


def _cpu() -> float:
    me = psutil.Process()
    times = [me.cpu_times(), *(child.cpu_times() for child in me.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def ratios(case: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Interleaves the policies, each in a fresh process."""
    found: dict[str, list[dict[str, float]]] = {policy: [] for policy in POLICIES}
    for _ in range(args.repeats):
        for policy in POLICIES:
            command = [sys.executable, __file__, "--one", policy, "--case", case, "--data", args.data]
            command += ["--clients", str(args.clients), "--rounds", str(args.rounds)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found[policy].append(json.loads(done.stdout.splitlines()[-1]))
    base = {key: median(one[key] for one in found["plaintext"]) for key in found["plaintext"][0]}
    rows = []
    for policy in POLICIES:
        mid = {key: median(one[key] for one in found[policy]) for key in base}
        rows.append(
            {
                "name": f"{case}, {policy}",
                "size": f"{args.data}, {args.clients} clients",
                **{
                    f"{key}_ratio": round(mid[key] / base[key], 3)
                    for key in ("cpu", "wall", "bytes", "memory")
                },
                "seconds_per_round": round(mid["wall"], 4),
                "memory_mb": round(mid["memory"]),
            }
        )
    return rows


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object with rows")
    parser.add_argument("--data", default="cora")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", choices=CASES, help="one case only")
    parser.add_argument("--one", choices=POLICIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.case, args.one, args.data, args.clients, args.rounds)))
        return
    rows = [row for case in CASES if args.case in (None, case) for row in ratios(case, args)]
    if args.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
