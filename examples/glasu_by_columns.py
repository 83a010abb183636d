"""GLASU: three owners of different columns and links of the same nodes train one network, layer by layer.

Offline, a few seconds. The table is what lazy aggregation (K of 4 layers) and stale updates (Q) save; below
it, what the server reads of single owners in plaintext and under masks.
"""

from __future__ import annotations

import secure_fedgraph as sfg

SMALL = {"hidden": 32, "steps": 8, "sampler": "public", "public_nodes": 96, "learning_rate": 0.2}


def main() -> None:
    """Savings, then protections."""
    federation = sfg.federate("synthetic-citation", clients=3, partition="vertical", nodes=240, features=90)
    print(" K   Q  bytes an update  saving by count")
    for aggregated, updates in (((1, 2, 3, 4), 1), ((2, 4), 1), ((2, 4), 4)):
        algorithm = sfg.Glasu(**SMALL, aggregated=aggregated, local_steps=updates, backward="local")
        run = sfg.train(algorithm, federation, sfg.policies.plaintext(), rounds=1, seed=0)
        sent = sum(
            one.bytes
            for one in run.transcript.sent
            if one.round and "referee" not in (one.sender, one.recipient)
        )
        each, factor = sent / (SMALL["steps"] * updates), updates * 4 / len(aggregated)
        print(f"{len(aggregated):2} {updates:3}  {each:15,.0f}  {factor:15.0f}")
    for policy in (sfg.policies.plaintext(), sfg.policies.masked()):
        run = sfg.train(
            sfg.Glasu(**SMALL), federation, policy, rounds=6, seed=0, keep=lambda channel, number: number == 1
        )
        rows = len(run.transcript.view("server").uploads("hidden"))
        accuracy = run.accuracy["global"]
        print(f"{policy.name}: accuracy {accuracy:.3f}, {rows} single uploads that the server reads")
    try:
        two = sfg.federate("synthetic-citation", clients=2, partition="vertical", nodes=240, features=90)
        sfg.train(sfg.Glasu(**SMALL), two, sfg.policies.masked(), rounds=1)
    except sfg.errors.Refused as refusal:
        print("two owners:", refusal)


if __name__ == "__main__":
    main()
