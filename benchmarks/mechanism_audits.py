"""How near the mechanism-level audits come to what is claimed, through the real upload path.

    python benchmarks/mechanism_audits.py [--json] [--only replace] [--trials 100000] [--epsilon 4]
                                           [--delta 1e-5] [--out runs/mechanism-audits]

One row a noised path: the claim of the ledger for one upload, the lower bound that worst-case neighbours give
(confidence 1 - 1e-4 for both bounds together), the share of the claim that it reaches, the bound without the
hypothesis that the noise is Gaussian, and the ceiling, which is what a path without noise would show. A row
is printed when it is done and kept under ``--out``; rows of the same trials, epsilon and delta are not made
again.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dp_accounting as dp

from secure_fedgraph.audits.empirical_dp.mechanisms import audit
from secure_fedgraph.audits.empirical_dp.worst_cases import (
    Neighbours,
    client_rows,
    long_record,
    pooled_parts,
    sampled_part,
    surely_taken,
)
from secure_fedgraph.core.channel import (
    Channel,
    Reveal,
    UnitContribution,
    UnitContributionMoments,
    UnitContributionSampled,
)
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.experiment.results import write_json
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp
from secure_fedgraph.privacy.policy import Policy

CLIENTS = ("a", "b", "c")
SIX = ("a", "b", "c", "d", "e", "f")
OFF = "noise taken off"
NORM = 1.5
UPDATE = Channel("update", Reveal.SUM)
SINGLE = Channel("single", Reveal.EACH)
SUMS = Channel("prototypes", Reveal.SUM, unit=Unit.GRAPH, unit_contribution=UnitContribution(3, 0.7))
SAMPLED = Channel(
    "step",
    Reveal.SUM,
    unit=Unit.NODE,
    links=False,
    unit_contribution=UnitContributionSampled(0.7, rate=0.1, records=640),
)
"""Audited with the unit in the sum: its coins are checked by ``audits/probes``."""
MOMENTS, CLASS_SUMS = (
    Channel(
        name,
        Reveal.SUM,
        unit=Unit.NODE,
        links=False,
        unit_contribution=UnitContributionMoments(targets=0.5, records=64, second=second),
    )
    for name, second in (("moments", True), ("class_sums", False))
)
Worst = Callable[[Bound], Neighbours]


def noised_paths(multiplier: float) -> list[tuple[str, Policy, Channel, Worst, str, tuple[str, ...]]]:
    """Name, policy, channel, neighbours, reader, colluders."""
    found: list[tuple[str, Policy, Channel, Worst, str, tuple[str, ...]]] = []
    row = partial(client_rows, norm=NORM, tensors=1)
    for relation in ("zero-out", "replace"):
        local, central = local_dp(NORM, multiplier, relation), central_dp(NORM, multiplier, relation)
        found += [
            (f"local_dp, {relation}", local, UPDATE, row, "server", ()),
            (f"local_dp, {relation}", local, SINGLE, row, "server", ()),
            (f"local_dp, {relation}", local, SUMS, pooled_parts, "server", ()),
            (f"local_dp, {relation}, all others collude", local, SUMS, pooled_parts, "peers", CLIENTS[1:]),
            (f"local_dp, {relation}, nobody colludes", local, SUMS, pooled_parts, "peers", ()),
            *((f"local_dp, {relation}", local, c, long_record, "server", ()) for c in (MOMENTS, CLASS_SUMS)),
            (f"local_dp, {relation}", local, SAMPLED, sampled_part, "server", ()),
            (f"central_dp, {relation}", central, SAMPLED, sampled_part, "outsider", ()),
            (f"central_dp, {relation}", central, MOMENTS, long_record, "outsider", ()),
            (f"central_dp, {relation}", central, UPDATE, row, "outsider", ()),
            (f"central_dp, {relation}", central, SUMS, pooled_parts, "outsider", ()),
        ]
        # a quorum of all three, of whom one colludes: two shares are all that is counted on
        shares = distributed_dp(NORM, multiplier, relation, quorum=3, colluders=1 / 3, limit=50.0)
        found += [
            (f"distributed_dp, {relation}, one colludes", shares, UPDATE, row, "server", CLIENTS[2:]),
            (f"distributed_dp, {relation}, one colludes", shares, SUMS, pooled_parts, "server", CLIENTS[2:]),
            *(
                (f"distributed_dp, {relation}, one colludes", shares, channel, worst, "server", CLIENTS[2:])
                for channel, worst in (
                    (MOMENTS, long_record),
                    (CLASS_SUMS, long_record),
                    (SAMPLED, sampled_part),
                )
            ),
        ]
        # sums of six, where three would do: what they do not need of their noise is taken off
        many = distributed_dp(NORM, multiplier, relation, quorum=3, colluders=1 / 6, limit=50.0)
        found.append((f"distributed_dp, {relation}, {OFF}", many, SUMS, pooled_parts, "server", SIX[5:]))
    return found


def rows(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each row when it is done; those that are kept are read."""
    multiplier = float(dp.get_sigma_gaussian(asked.epsilon, asked.delta))
    for name, policy, channel, worst, reader, colluders in noised_paths(multiplier):
        if not all(word in f"{name} {channel.name}" for word in asked.only):
            continue
        settings = f"{asked.trials}-{asked.epsilon:g}-{asked.delta:g}"
        file = re.sub(r"[^a-z0-9]+", "-", f"{name} {channel.name} {reader}".lower())
        kept = asked.out / settings / f"{file}.json"
        if not kept.is_file():
            clients = SIX if OFF in name else CLIENTS
            bound = surely_taken(policy.bind((channel,), clients)[channel.name])
            started = time.process_time()
            made = audit(
                bound, worst(bound), reader, trials=asked.trials, delta=asked.delta, colluders=colluders
            )
            row = {
                "name": name,
                "channel": f"{channel.name} ({channel.unit.value})",
                "reader": reader,
                "claim": round(made.claim, 3),
                "lower": round(made.lower.epsilon, 3),
                "reached": round(made.reached, 3),
                "any_noise": round(made.any_noise.epsilon, 3),
                "ceiling": round(made.lower.ceiling, 1),
                "holds": not made.broken,
                "trials": made.lower.scores_in,
                "cpu_s": round(time.process_time() - started, 1),
            }
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_json(kept, row)
        yield json.loads(kept.read_text())


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object with rows")
    parser.add_argument("--only", action="append", default=[], help="rows that hold this word; repeatable")
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--out", type=Path, default=Path("runs/mechanism-audits"), help="where rows are kept")
    asked = parser.parse_args()
    if asked.json:
        print(json.dumps({"rows": list(rows(asked))}))
        return
    for row in rows(asked):
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
