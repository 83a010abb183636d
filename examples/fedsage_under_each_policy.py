"""FedSage on one small generated graph under each policy: accuracy, bytes, epsilon, what the server can open.

Offline, a few seconds. `local_dp` and `central_dp` are run with little noise, to show what they cost and what
they claim; a real budget needs many more owners.
"""

from __future__ import annotations

import secure_fedgraph as sfg

POLICIES = {
    "plaintext": sfg.policies.plaintext(),
    "local_dp": sfg.policies.local_dp(norm=1.0, multiplier=1.1),
    "central_dp": sfg.policies.central_dp(norm=1.0, multiplier=1.1),
    "masked": sfg.policies.masked(),
    "homomorphic": sfg.policies.homomorphic(),
}


def main() -> None:
    """One row a policy."""
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=240, features=60)
    algorithm = sfg.FedSage(learning_rate=0.01)
    print(f"{'policy':12} {'accuracy':>8} {'bytes up':>10}  epsilon by reader; uploads that the server reads")
    for name, policy in POLICIES.items():
        run = sfg.train(algorithm, federation, policy, rounds=4, seed=0)
        readers = run.privacy(unit="client", delta=1e-5)["readers"]
        # nothing is kept of the bodies by default; what a view can open is asked of a run that keeps them
        kept = sfg.train(algorithm, federation, policy, rounds=1, keep=lambda channel, round: True)
        opened = len(kept.transcript.view("server").uploads("update"))
        print(
            f"{name:12} {run.accuracy['global']:8.3f} {run.transcript.traffic()['up']:10,}  "
            f"{', '.join(f'{reader} {value}' for reader, value in readers.items())}; {opened} of 3"
        )


if __name__ == "__main__":
    main()
