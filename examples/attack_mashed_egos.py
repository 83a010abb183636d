"""FedEgo's mashed ego-graphs under attack: kept batches, secret ones, and sums over owners.

A server that follows the protocol reads each mash, a mean over 16 ego-graphs. It knows the reduction layer of
every round and, as public profiles, what all nodes of the data look like, but not who owns them.
"""

from __future__ import annotations

from typing import Any

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Attack, Blind, MashDictionary, MashFilter, MashLabels, MashSingle
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES, knowledge


def outcome(attack: Attack, finished: FinishedRun, aim: str) -> str:
    """What one attack reaches, or why it is blind."""
    try:
        guess = getattr(attack, aim)(finished.transcript.view("server"), knowledge(attack, finished))
    except Blind as reason:
        return f"blind: {reason}"
    score = JUDGES[guess.about](guess, finished).score
    return f"{score.metric} {score.value:.2f}, trivial {score.baseline:.2f}"


def show(
    name: str,
    policy: sfg.policies.Policy,
    aim: str = "run",
    kind: type[sfg.FedEgo] = sfg.FedEgo,
    **settings: Any,
) -> None:
    """Trains five rounds and lets every attack look."""
    federation = sfg.federate(
        "synthetic-citation", clients=3, partition="random", seed=0, nodes=300, features=200
    )
    algorithm = kind(**{"hidden": (32, 32), "epochs": 1, "batch": 16, **settings})
    run = sfg.train(algorithm, federation, policy, rounds=5, keep=lambda channel, round: True)
    print(name)
    for attack in (MashSingle, MashLabels, MashDictionary, MashFilter):
        print(f"  {attack.id:20} {outcome(attack(), FinishedRun.of(run, seed=0), aim)}")


if __name__ == "__main__":
    plain = sfg.policies.plaintext()
    released = sfg.FedEgoReleased
    show("the released code's batches, of which one node is left over", plain, kind=released, batch=59)
    show("the same, by sixteens", plain, kind=released)
    show("secret batches, the default", plain)
    show("secret batches, 256 units wide", plain, hidden=(256, 256))
    show("masked sums: single owners", sfg.policies.masked(), mash="across")
    show("masked sums: all owners together", sfg.policies.masked(), "residual", mash="across")
