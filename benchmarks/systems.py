"""Bytes and seconds of the papers' baseline systems, as ratios to FedAvg's; how near masks are to none.

    python benchmarks/systems.py [--json] [--rounds 5] [--repeats 3]

Seconds are the processor's. Node-level systems on Cora (5 owners, label skew) beside ``fedavg``, those of
whole graphs on PROTEINS (10 agents) beside ``gin-fedavg``; default settings. Each runs under the first policy
that hides single uploads and binds: sums under masks, peers' models sealed, or values on ciphertexts; in
plaintext where none does. "Apart" is the largest difference of a weight of the final model from that of the
same run in plaintext; a dash where the model that counts stays with the clients.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from statistics import median
from typing import Any

import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core.errors import Refused

NODES = ("fedavg", "fedgcn", "graphfl", "d-fedgnn")
GRAPHS = ("gin-fedavg", "gcfl", "gcfl+", "fedstar", "dw", "eu", "cffl", "cgsv", "fairgraphfl")
HIDING = ("masked", "sealed", "homomorphic", "plaintext")


def measured(name: str, federation: sfg.Federation, policy: str, rounds: int) -> dict[str, Any]:
    """One run, whose rounds count from the first that is scored."""
    algorithm = ALGORITHMS[name]()
    started = time.process_time()
    run = sfg.train(algorithm, federation, policy, rounds=rounds, seed=0)
    up = sum(one.bytes for one in run.transcript.sent if one.sender != "server")
    return {"cpu": time.process_time() - started, "bytes": up, "state": algorithm.released(run.state)}


def hiding(name: str, federation: sfg.Federation) -> str:
    """The first policy that binds."""
    for policy in HIDING:
        try:
            sfg.train(ALGORITHMS[name](), federation, policy, rounds=1, seed=0)
        except Refused:
            continue
        return policy
    raise RuntimeError(f"{name} binds under none of {HIDING}")


def apart(one: dict[str, torch.Tensor] | None, other: dict[str, torch.Tensor] | None) -> float | None:
    """The largest difference of a weight."""
    if not one or not other or not all(value.is_floating_point() for value in one.values()):
        return None
    return max(float((value - other[key]).abs().max()) for key, value in one.items())


def rows(
    names: tuple[str, ...], federation: sfg.Federation, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """One row a system; the first is what the others are measured by."""
    found: list[dict[str, Any]] = []
    of_cpu = of_up = 1.0
    for name in names:
        policy = hiding(name, federation)
        kinds = [measured(name, federation, policy, args.rounds) for _ in range(args.repeats)]
        plain = measured(name, federation, "plaintext", args.rounds)
        cpu, up = median(one["cpu"] for one in kinds), median(one["bytes"] for one in kinds)
        if name == names[0]:
            of_cpu, of_up = cpu, up
        row = {
            "name": name,
            "policy": policy,
            "cpu_ratio": round(cpu / of_cpu, 2),
            "bytes_ratio": round(up / of_up, 2),
        }
        found.append({**row, "apart": apart(plain["state"], kinds[0]["state"])})
    return found


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object with rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # forms, and plaintext, are the point
    torch.set_num_threads(1)
    cora = sfg.federate("cora", clients=5, partition="label_skew", seed=0)
    proteins = sfg.federate("proteins", clients=10, partition="random", seed=0)
    found = rows(NODES, cora, args) + rows(GRAPHS, proteins, args)
    if args.json:
        print(json.dumps({"rows": found}))
        return
    for row in found:
        gap = "-" if row["apart"] is None else f"{row['apart']:.1e}"
        print(
            f"{row['name']:12} {row['policy']:12} cpu {row['cpu_ratio']:6.2f}  "
            f"bytes {row['bytes_ratio']:6.2f}  apart {gap}"
        )


if __name__ == "__main__":
    main()
