"""What noise costs: CPU as a ratio to numpy's ``standard_normal`` of the same size, float64, one thread.

    python benchmarks/noise.py [--json] [--size 1000000] [--sigma 4 256 1024 16384] [--repeats 7]
    python benchmarks/noise.py --left [--clients 10 50 200] [--quorum 0.8]

The discrete and the rounded Gaussian draw int32 from AES-CTR over the operating system's key. numpy's
generator is seeded and protects nobody. Each figure is the median of the repeats, the baseline's over every
repeat of every row. ``table_ms`` is paid once a sigma and process.

``--left``: the noise that is left in a sum under ``distributed_dp``, as a multiple of what the guarantee
takes: with everybody in it, with one in twenty silent after the upload, with one in ten gone before it, at
the quorum; before, and once what a sum does not need is taken off. It draws nothing: the stage says what is
left.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.protection.discrete_gaussian import DiscreteGaussian
from secure_fedgraph.core.protection.rounded_gaussian import rounded_gaussian
from secure_fedgraph.policies import distributed_dp


def table(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a sampler."""
    generator, base, measured = np.random.default_rng(0), [], []

    def add(name: str, work: Callable[[], Any], **more: Any) -> None:
        found = []
        for repeat in range(args.repeats + 1):
            seconds = _time(work)
            reference = _time(lambda: generator.standard_normal(args.size))
            if repeat:  # the first warms the caches
                found.append(seconds)
                base.append(reference)
        measured.append((name, median(found), more))

    for sigma in args.sigma:
        made: list[DiscreteGaussian] = []
        built = _time(lambda sigma=sigma, made=made: made.append(DiscreteGaussian(sigma)))  # type: ignore[misc]
        add(
            f"discrete Gaussian, sigma {sigma:g}",
            partial(made[0].draw, args.size),
            table_ms=round(1e3 * built, 1),
            reach=made[0].reach,
            log2_total_variation=round(math.log2(made[0].total_variation), 1),
        )
    add("rounded Gaussian, sigma 4096", partial(rounded_gaussian(4096).draw, args.size))
    normal = median(base)
    return [
        {
            "name": name,
            "size": f"{args.size} values",
            "cpu_ratio": round(seconds / normal, 2),
            "cpu_ms": round(1e3 * seconds, 2),
            "standard_normal_ms": round(1e3 * normal, 2),
            **more,
        }
        for name, seconds, more in measured
    ]


def left(clients: int, quorum: float) -> dict[str, Any]:
    """What is left of the noise in sums of so many clients, over the noise that the guarantee takes."""
    names, channel = tuple(f"c{i}" for i in range(clients)), Channel("update", Reveal.SUM)
    now, before = (
        distributed_dp(1.0, 1.0, quorum=quorum, remove_excess=removed).bind((channel,), names)["update"]
        for removed in (True, False)
    )
    fewest, tenth, silent = now.quorum, clients - clients // 10, max(1, clients // 20)
    cases = {"all": (clients, 0), "silent": (clients, silent), "gone": (tenth, 0), "quorum": (fewest, 0)}
    row: dict[str, Any] = {"clients": clients, "parts": len(now.carrier.noise_components.all)}
    for case, (uploads, whole) in cases.items():
        row[f"{case}_before"] = round(before.deviation(uploads), 3)
        row[case] = round(now.deviation(uploads, whole), 3)
    return row


def _time(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object with rows")
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--sigma", type=float, nargs="+", default=[4.0, 256.0, 1024.0, 16384.0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--left", action="store_true", help="what is left of the noise in a sum")
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 50, 200])
    parser.add_argument("--quorum", type=float, default=0.8)
    args = parser.parse_args()
    rows = [left(clients, args.quorum) for clients in args.clients] if args.left else table(args)
    if args.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
