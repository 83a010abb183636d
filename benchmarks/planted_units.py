"""What sums of updates give away to a server that plants its broadcast (attack A5), by owners and policy.

    python benchmarks/planted_units.py [--data cora] [--clients 3,10,50] [--rounds 10] [--seeds 3] [--json]

One row a number of owners and a policy: how many nodes the attack names, how many of them are nodes of some
owner in every word, and which share of all nodes they are. The owners follow the protocol. The noise of
``distributed_dp`` has multiplier 1 on a clip of 1.
"""

from __future__ import annotations

import argparse
import json
import warnings
from statistics import fmean
from typing import Any

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Blind, Knowledge, PlantedUnits
from secure_fedgraph.attacks.active.planted_units import playing
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES
from secure_fedgraph.backends.memory import keep_freed_memory

NOISE = {"norm": 1.0, "multiplier": 1.0}
POLICIES: dict[str, dict[str, float]] = {"masked": {}, "homomorphic": {}, "distributed_dp": NOISE}
WIDE = (256, 32)
"""Hidden widths: 128 units in the half that the server plants."""


def scored(data: str, clients: int, policy: str, rounds: int, seed: int) -> dict[str, float]:
    """One run's nodes named, the share of them that are nodes, and the share of all nodes."""
    federation = sfg.federate(data, clients=clients, seed=seed)
    made = getattr(sfg.policies, policy)(**POLICIES[policy])
    algorithm = playing(sfg.FedSage)(hidden=WIDE)
    run = sfg.train(algorithm, federation, made, rounds=rounds, seed=seed, keep=lambda channel, round: True)
    view = run.transcript.view("server")
    try:
        guess = PlantedUnits().run(view, Knowledge())
    except Blind:
        guess = PlantedUnits().residual(view, Knowledge())
    score = JUDGES[guess.about](guess, FinishedRun.of(run, seed)).score
    return {
        "named": score.details["rows_named"],
        "right": score.details["share_that_are_nodes"],
        "covered": score.value,
        "trivial": score.baseline,
    }


def main() -> None:
    """The command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cora")
    parser.add_argument("--clients", default="3,10,50")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    keep_freed_memory()
    rows: list[dict[str, Any]] = []
    for clients in map(int, asked.clients.split(",")):
        for policy in asked.policies.split(","):
            each = [
                scored(asked.data, clients, policy, asked.rounds, asked.first + seed)
                for seed in range(asked.seeds)
            ]
            mean = {key: fmean(one[key] for one in each) for key in each[0]}
            rows.append({"clients": clients, "policy": policy, "seeds": len(each), **mean})
            if not asked.json:
                print(
                    f"{clients:3} owners  {policy:15} {mean['named']:6.1f} nodes named, {mean['right']:.1%} "
                    f"right, {mean['covered']:.2%} of all (trivial {mean['trivial']:.2%}), {len(each)} seeds",
                    flush=True,
                )
    if asked.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
