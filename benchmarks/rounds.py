"""Seconds and memory per FedSage round under each policy, as ratios to plaintext in the same run.

    python benchmarks/rounds.py [--json] [--data cora] [--clients 3] [--rounds 8] [--repeats 3]

Policies are interleaved, so that a busy machine slows all of them; figures are medians over rounds. The first
round of every run (set-up, caches) is left out. CPU counts this process and its workers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil

ROOT = Path(__file__).resolve().parent.parent
POLICIES = ("plaintext", "masked", "homomorphic")


def measure(policy: str, data: str, clients: int, rounds: int) -> dict[str, float]:
    """One run in this process."""
    import torch

    import secure_fedgraph as sfg

    torch.set_num_threads(1)  # two threads on a shared machine measure the neighbours
    federation = sfg.federate(data, clients=clients, seed=0)
    wall, cpu = [time.perf_counter()], [_cpu()]

    def note(row: object) -> None:
        wall.append(time.perf_counter())
        cpu.append(_cpu())

    run = sfg.train(
        sfg.FedSage(), federation, getattr(sfg.policies, policy)(), rounds=rounds + 1, seed=0, on_round=note
    )
    me = psutil.Process()
    memory = me.memory_info().rss + sum(child.memory_info().rss for child in me.children(recursive=True))
    return {
        "wall": median(b - a for a, b in pairwise(wall[1:])),
        "cpu": median(b - a for a, b in pairwise(cpu[1:])),
        "bytes": run.transcript.traffic()["up"] / (rounds + 1),
        "memory": memory / 1e6,
    }


def _cpu() -> float:
    me = psutil.Process()
    times = [me.cpu_times(), *(child.cpu_times() for child in me.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def main() -> None:
    """Interleaves the policies, each in a fresh process, and prints ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", default="cora")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=POLICIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.data, args.clients, args.rounds)))
        return
    found: dict[str, list[dict[str, float]]] = {policy: [] for policy in POLICIES}
    for _ in range(args.repeats):
        for policy in POLICIES:
            command = [sys.executable, __file__, "--one", policy, "--data", args.data]
            command += ["--clients", str(args.clients), "--rounds", str(args.rounds)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found[policy].append(json.loads(done.stdout.splitlines()[-1]))
    base = {key: median(one[key] for one in found["plaintext"]) for key in found["plaintext"][0]}
    rows = []
    for policy in POLICIES:
        mid = {key: median(one[key] for one in found[policy]) for key in base}
        rows.append(
            {
                "name": policy,
                "size": f"fedsage, {args.data}, {args.clients} clients",
                "cpu_ratio": round(mid["cpu"] / base["cpu"], 3),
                "wall_ratio": round(mid["wall"] / base["wall"], 3),
                "bytes_ratio": round(mid["bytes"] / base["bytes"], 3),
                "memory_ratio": round(mid["memory"] / base["memory"], 3),
                "seconds_per_round": round(mid["wall"], 4),
                "memory_mb": round(mid["memory"]),
            }
        )
    if args.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
