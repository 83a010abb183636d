"""What of ours no command times: epochs of FedSage+'s exchange, noisy steps, encrypted sums of neighbours.

    python ours.py --what generator|steps|neighbours --rounds 3 [--asked 64]

``generator``: that many federated epochs of the generator, by the paper's exchange, in which an owner asks
the others about so many nodes. OpenFGL's owners ask about some 540 of Cora's, FederatedScope's about 810.
``steps``: that many noisy steps of each owner on a fifth of its records, under masks. ``neighbours``: that
many times FedGCN's sums over neighbours under ciphers, with one round of training each.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import replace

import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS, FedSagePlus
from secure_fedgraph.backends.memory import keep_freed_memory
from secure_fedgraph.privacy.dp_sgd import PrivateSteps

RATE = 0.2


def main() -> None:
    """Reads the options, trains, prints one JSON object."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--what", choices=("generator", "steps", "neighbours"), required=True)
    asked.add_argument("--rounds", type=int, required=True)
    asked.add_argument("--asked", type=int, default=64)
    given = asked.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    parts = "random" if given.what == "neighbours" else "louvain"  # as the others divide Cora
    federation = sfg.federate("cora", clients=3, partition=parts, seed=0)
    match given.what:
        case "generator":
            algorithm = FedSagePlus(
                generator_epochs=1, federated_epochs=given.rounds, exchange_batch=given.asked
            )
            run = sfg.train(algorithm, federation, "plaintext", rounds=1, seed=0)
        case "steps":
            steps = PrivateSteps(noise=1.0, rate=RATE, steps=given.rounds)
            policy = replace(sfg.policies.masked(), steps=steps)
            run = sfg.train(sfg.FedSage(places=36), federation, policy, rounds=1, seed=0)
        case "neighbours":
            for _ in range(given.rounds):
                run = sfg.train(ALGORITHMS["fedgcn"](hops=1), federation, "homomorphic", rounds=1, seed=0)
    up = sum(one.bytes for one in run.transcript.sent if one.recipient == "server") / len(federation.names)
    each = up if given.what == "neighbours" else up / given.rounds
    print(json.dumps({"accuracy": run.accuracy["global"], "bytes": each}))


if __name__ == "__main__":
    main()
