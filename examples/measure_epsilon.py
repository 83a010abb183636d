"""Epsilon, measured: the claim of a run beside what worst cases make of it.

Each noise by itself on two worlds that differ in one unit as much as its clip allows. A bound above its claim
would refute it. Generated data, offline.
"""

from __future__ import annotations

from typing import Any

from secure_fedgraph.audits.empirical_dp.empirical import empirical_rows
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute

CLAIMS: dict[str, dict[str, Any]] = {
    "a whole owner, noise in shares": {"policy": "distributed_dp", "unit": "client"},
    "one node, noisy steps": {"policy": "masked", "unit": "node"},
    "one link, randomised": {"policy": "plaintext", "unit": "edge"},
}


def main() -> None:
    """Prints claim, lower bound and power."""
    for name, settings in CLAIMS.items():
        experiment = Experiment(
            algorithm="fedavg",
            data="synthetic-citation",
            clients=4,
            rounds=2,
            epsilon=4.0,
            dataset={"nodes": 600, "features": 16},
            training={"hidden": [8], "fanout": [2], "places": 5, "crowd": 7},
            **settings,
        )
        rows = empirical_rows(execute(experiment, None), experiment.delta, trials=4000)
        for row in rows:
            told = f"{name}: {row['noise']}, {row['of']}: {row['outcome']}"
            if "lower" in row:
                told += (
                    f", claimed {row['claim']:.2f}, at least {row['lower']:.2f}, power {row['ceiling']:.1f}"
                )
            print(told, row["reason"])


if __name__ == "__main__":
    main()
