"""What sums of updates give away to a server that plants its broadcast (attack A5), by owners and policy.

    python benchmarks/planted_units.py [--clients 3,10,50] [--optimizer sgd] [--change 2.5] [--units 0.05]
                                       [--seeds 3] [--json]

For each number of owners and each policy: how many nodes the attack names, how many of them are nodes of some
owner in every word, and which share of all nodes they are. The owners follow the protocol. The noise of
``distributed_dp`` has multiplier 1 on a clip of 1.

With ``--change`` and ``--units`` the owners refuse broadcasts beyond these limits, and three rows take the
place of one: a server that plants at once (what becomes of its run), a server that knows the limits and moves
within them, and the false alarms, which are honest runs that the limits stop, with the mean over seeds of the
largest step that an honest model made in a round.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from statistics import fmean
from typing import Any

from written_pages import options, show

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
ROUNDS = 10
WIDE = (256, 32)
"""Hidden widths: 128 units in the half that the server plants."""
RATES = {"adam": 0.001, "sgd": 1.0}
"""Learning rates at which both reach Cora's accuracy in ten rounds."""


def trained(asked: argparse.Namespace, algorithm: Any, clients: int, policy: str, seed: int) -> Run:
    """One run, with everything that the server opened."""
    federation = sfg.federate("cora", clients=clients, seed=seed)
    made = getattr(sfg.policies, policy)(**POLICIES[policy])
    if asked.change is not None or asked.units is not None:
        made = replace(made, broadcasts=BroadcastLimits(asked.change, asked.units))
    settings = {"hidden": WIDE, "optimizer": asked.optimizer, "learning_rate": RATES[asked.optimizer]}
    options = {"rounds": ROUNDS, "seed": seed, "keep": lambda channel, round: True}
    run: Run = sfg.train(algorithm(**settings), federation, made, **options)
    return run


def attacked(
    server: Any, asked: argparse.Namespace, clients: int, policy: str, seed: int
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
    parser = options(__doc__)
    parser.add_argument("--clients", default="3,10,50")
    parser.add_argument("--optimizer", choices=RATES, default="adam")
    parser.add_argument("--change", type=float, help="the owners' limit on a model's step in a round")
    parser.add_argument("--units", type=float, help="the owners' limit on the share of planted units")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    keep_freed_memory()
    servers: dict[str, Any] = {"plants at once": partial(attacked, playing(sfg.FedSage))}
    if asked.change is not None:
        servers["knows the limits"] = partial(attacked, playing(sfg.FedSage, asked.change, ROUNDS * 4 // 5))
    if asked.change is not None or asked.units is not None:
        servers["honest"] = honest
    rows: list[dict[str, Any]] = []
    for clients, policy in product(map(int, asked.clients.split(",")), POLICIES):
        for name, served in servers.items():
            each = [served(asked, clients, policy, seed) for seed in range(asked.seeds)]
            mean = {key: fmean(one[key] for one in each) for key in each[0]}
            rows.append({"clients": clients, "policy": policy, "server": name, "seeds": len(each), **mean})
            print(rows[-1], file=sys.stderr, flush=True)
    show(rows, asked.json)


if __name__ == "__main__":
    main()
