"""Time and bytes of a GLASU epoch by aggregated layers and stale updates, as ratios to K = L and Q = 1.

    python benchmarks/glasu.py [--json] [--data cora] [--clients 3] [--policy plaintext] [--sampler paper]

An epoch is as many updates as it takes to see every training node once: with Q updates after each joint
inference it needs a Q-th of the exchanges. The baseline is every layer aggregated (K = L) and Q = 1 with
local gradients, measured in the same process; every figure is the mean over ``--rounds`` rounds after a
first one that warms up. The last row has gradients through the server, which doubles what travels. Timings
are of this machine: messages here cost no network.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any
from unittest import mock

import psutil
import torch

import secure_fedgraph as sfg
from secure_fedgraph.protocol.transcript import REFEREE

LAYERS = 4
CASES: tuple[tuple[tuple[int, ...], int, str], ...] = (
    ((1, 2, 3, 4), 1, "local"),
    ((2, 4), 1, "local"),
    ((4,), 1, "local"),
    ((1, 2, 3, 4), 4, "local"),
    ((2, 4), 4, "local"),
    ((2, 4), 16, "local"),
    ((2, 4), 1, "server"),
)


def measure(
    federation: sfg.Federation, policy: str, sampler: str, case: tuple[tuple[int, ...], int, str], rounds: int
) -> dict[str, float]:
    """Seconds, CPU seconds and bytes of one epoch."""
    aggregated, updates, backward = case
    epoch = federation.facts["partition"]["training"] / 16
    steps = max(round(16 / updates), 1)
    algorithm = sfg.Glasu(
        aggregated=aggregated,
        local_steps=updates,
        backward=backward,
        steps=steps,
        sampler=sampler,
        accept_two_clients=True,
    )
    wall: list[float] = []
    cpu: list[float] = []
    inner, me = sfg.Glasu.round, psutil.Process()

    def timed(self: Any, round: Any, state: Any) -> Any:
        started, busy = time.perf_counter(), sum(me.cpu_times()[:2])
        after = inner(self, round, state)
        if round.number > 1:
            wall.append(time.perf_counter() - started)
            cpu.append(sum(me.cpu_times()[:2]) - busy)
        return after

    # on the class: a run trains a copy of the algorithm
    with mock.patch.object(sfg.Glasu, "round", timed):
        run = sfg.train(algorithm, federation, getattr(sfg.policies, policy)(), rounds=rounds + 1, seed=0)
    sent = sum(s.bytes for s in run.transcript.sent if s.round > 1 and REFEREE not in (s.sender, s.recipient))
    epochs = rounds * steps * updates / epoch
    messages = sum(s.round > 1 and REFEREE not in (s.sender, s.recipient) for s in run.transcript.sent)
    return {
        "wall": sum(wall) / epochs,
        "cpu": sum(cpu) / epochs,
        "bytes": sent / epochs,
        "messages": messages / epochs,
    }


def main() -> None:
    """Prints one row a case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object with rows")
    parser.add_argument("--data", default="cora")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--policy", default="plaintext", choices=("plaintext", "masked"))
    parser.add_argument("--sampler", default="paper", choices=("paper", "public"))
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    if args.policy == "masked" and args.sampler == "paper":
        parser.error("index lists are read one by one, which masked refuses: add --sampler public")
    torch.set_num_threads(1)  # two threads on a shared machine measure the neighbours
    federation = sfg.federate(args.data, args.clients, "vertical", seed=0)
    rows: list[dict[str, Any]] = []
    base: dict[str, float] = {}
    for case in CASES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = measure(federation, args.policy, args.sampler, case, args.rounds)
        base = base or found
        aggregated, updates, backward = case
        rows.append(
            {
                "name": f"K={len(aggregated)}, Q={updates}, backward {backward}",
                "size": f"{args.data}, {args.clients} clients, {args.policy}",
                **{f"{key}_ratio": round(found[key] / base[key], 4) for key in found},
                "expected_ratio": len(aggregated) / LAYERS / updates * (2 if backward == "server" else 1),
                "seconds_per_epoch": round(found["wall"], 3),
                "megabytes_per_epoch": round(found["bytes"] / 1e6, 3),
            }
        )
    if args.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
