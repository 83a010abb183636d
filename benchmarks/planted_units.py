"""What sums of updates give away to a server that plants its broadcast (attack A5), by owners and policy.

    python benchmarks/planted_units.py [--data cora] [--clients 3,10,50] [--policies masked] [--rounds 10]
                                       [--optimizer sgd] [--change 2.5] [--units 0.05] [--seeds 3] [--json]

For each number of owners and each policy: how many nodes the attack names, how many of them are nodes of some
owner in every word, and which share of all nodes they are. The owners follow the protocol. The noise of
``distributed_dp`` has multiplier 1 on a clip of 1.

With ``--change`` and ``--units`` the owners refuse broadcasts beyond these limits, and three rows take the
place of one: a server that plants at once (what becomes of its run), a server that knows the limits and moves
within them, and the false alarms, which are honest runs that the limits stop, with the largest step that an
honest model made in a round.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Blind, Knowledge, PlantedUnits
from secure_fedgraph.attacks.active.planted_units import playing
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES
from secure_fedgraph.backends.memory import keep_freed_memory
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.privacy.broadcasts import BroadcastLimits, distance
from secure_fedgraph.running.run import Run

NOISE = {"norm": 1.0, "multiplier": 1.0}
POLICIES: dict[str, dict[str, float]] = {"masked": {}, "homomorphic": {}, "distributed_dp": NOISE}
WIDE = (256, 32)
"""Hidden widths: 128 units in the half that the server plants."""
RATES = {"adam": 0.001, "sgd": 1.0}
"""Learning rates at which both reach Cora's accuracy in ten rounds."""


def trained(asked: argparse.Namespace, algorithm: Any, clients: int, policy: str, seed: int) -> Run:
    """One run, with everything that the server opened."""
    federation = sfg.federate(asked.data, clients=clients, seed=seed)
    made = getattr(sfg.policies, policy)(**POLICIES[policy])
    if asked.change is not None or asked.units is not None:
        made = replace(made, broadcasts=BroadcastLimits(asked.change, asked.units))
    settings = {"hidden": WIDE, "optimizer": asked.optimizer, "learning_rate": RATES[asked.optimizer]}
    options = {"rounds": asked.rounds, "seed": seed, "keep": lambda channel, round: True}
    run: Run = sfg.train(algorithm(**settings), federation, made, **options)
    return run


def attacked(
    asked: argparse.Namespace, server: Any, clients: int, policy: str, seed: int
) -> dict[str, float]:
    """A run's nodes named, the share of them that are nodes, the share of all nodes; nothing if refused."""
    try:
        run = trained(asked, server, clients, policy, seed)
    except HostileMessage:
        return {"named": 0, "right": 0, "covered": 0, "refused": 1}
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
        "refused": 0,
    }


def honest(asked: argparse.Namespace, clients: int, policy: str, seed: int) -> dict[str, float]:
    """Whether the limits stop an honest run, and the largest step of its model in a round."""
    given: list[Any] = []

    class Watched(sfg.FedSage):
        def takes(self, channel: str, schema: Any) -> Any:
            return super().takes(channel, schema)

        def round(self, round: Any, state: Any) -> Any:
            given.append(state)
            return super().round(round, state)

    try:
        trained(asked, Watched, clients, policy, seed)
    except HostileMessage:
        return {"refused": 1, "largest": float("nan")}
    steps = [distance(after, before) for before, after in pairwise(given)]
    return {"refused": 0, "largest": max(steps)}


def main() -> None:
    """The command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cora")
    parser.add_argument("--clients", default="3,10,50")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--optimizer", choices=RATES, default="adam")
    parser.add_argument("--change", type=float, help="the owners' limit on a model's step in a round")
    parser.add_argument("--units", type=float, help="the owners' limit on the share of planted units")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    keep_freed_memory()
    servers: dict[str, Any] = {"plants at once": playing(sfg.FedSage)}
    if asked.change is not None:
        walk = max(asked.rounds * 4 // 5, 1)
        servers["knows the limits"] = playing(sfg.FedSage, asked.change, walk)
    limited = asked.change is not None or asked.units is not None
    rows: list[dict[str, Any]] = []
    for clients in map(int, asked.clients.split(",")):
        for policy in asked.policies.split(","):
            seeds = range(asked.first, asked.first + asked.seeds)
            for name, server in servers.items():
                each = [attacked(asked, server, clients, policy, seed) for seed in seeds]
                mean = {key: fmean(one[key] for one in each) for key in each[0]}
                rows.append(
                    {"clients": clients, "policy": policy, "server": name, "seeds": len(each), **mean}
                )
                if not asked.json:
                    print(
                        f"{clients:3} owners  {policy:15} {name:17} {mean['named']:6.1f} nodes named, "
                        f"{mean['right']:.1%} right, {mean['covered']:.2%} of all; "
                        f"{mean['refused']:.0%} of runs refused, {len(each)} seeds",
                        flush=True,
                    )
            if limited:
                alarms = [honest(asked, clients, policy, seed) for seed in seeds]
                refused, largest = (
                    sum(one["refused"] for one in alarms),
                    max(one["largest"] for one in alarms),
                )
                rows.append(
                    {"clients": clients, "policy": policy, "server": "honest", "seeds": len(alarms)}
                    | {"refused": refused / len(alarms), "largest": largest}
                )
                if not asked.json:
                    print(
                        f"{clients:3} owners  {policy:15} honest            {refused:.0f} of {len(alarms)} "
                        f"runs refused (false alarms), largest step {largest:.3g}",
                        flush=True,
                    )
    if asked.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
