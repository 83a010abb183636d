"""Four ways to keep to a budget, on one small generated graph: for a client, a node, a link, a label.

Offline, some seconds. With three owners a client's own budget costs nearly everything; a node's or a link's
is another matter. `docs/budgets.md` has curves on real data.
"""

from __future__ import annotations

from dataclasses import replace

import secure_fedgraph as sfg
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks

DELTA, ROUNDS = 1e-5, 4


def main() -> None:
    """One row a guarantee: what was spent, and what the model is worth."""
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=240, features=60)
    masked = sfg.policies.masked()
    runs = {
        # every client adds its share of the noise; the server sees the noised sum only
        "client": (sfg.policies.distributed_dp(norm=1.0, multiplier=1.3), 8.0),
        # the clients train by noisy steps, so whatever they send is covered for one node: its removal changes
        # 1 + places + crowd records at most
        "node": (replace(masked, steps=PrivateSteps(noise=30.0, rate=0.2, steps=5)), 8.0),
        # the clients draw their links anew, once: randomised response on every pair of nodes
        "edge": (replace(masked, randomizers=(RandomisedLinks(8.0),)), 8.0),
        # the same with their labels: every node tells its own class, or any other by a secret coin
        "label": (replace(masked, randomizers=(RandomisedLabels(2.0),)), 2.0),
    }
    print(f"{'one':8} {'spent':>8} {'accountant':15} {'rests on masks':>14} {'accuracy':>9}")
    for unit, (policy, epsilon) in runs.items():
        algorithm = sfg.FedSage(learning_rate=0.02, hidden=(16,), fanout=(2,), places=10, crowd=10)
        budget = Budget(epsilon, DELTA, unit)  # the run would stop before the message that exceeds it
        run = sfg.train(algorithm, federation, policy, rounds=ROUNDS, seed=0, budget=budget)
        told = run.privacy(unit, DELTA)
        print(
            f"{unit:8} {told['epsilon']:>8} {told['accountant']:15} {told['computational']!s:>14} "
            f"{run.accuracy['global']:>9.3f}"
        )


if __name__ == "__main__":
    main()
