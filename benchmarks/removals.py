"""What removing one node changes: trees of PubMed's first owner, the noise that it costs, and a Monte Carlo.

    python benchmarks/removals.py [--table] [--json] [--nodes 20] [--hubs 5] [--trials 20000]

Removes random nodes and hubs with all their links from the first owner of PubMed's default partition, samples
neighbours again under the owner's key, and counts the training trees that differ. Then plays the removal that
changes the most against noise that is planned for epsilon 8, through the client's own training.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training import private_training
from secure_fedgraph.audits.empirical_dp.removals import Removals
from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.graph.sample.occurrences import occurrences
from secure_fedgraph.privacy.dp_sgd import PrivateSteps

DELTA, EPSILON, STEPS, RATE = 1e-5, 8.0, 100, 0.05
SETTINGS: dict[str, dict[str, Any]] = {
    "one hop, 25 places": {"fanout": (2,), "hidden": (16,), "places": 25, "crowd": 10},
    "one hop, 2 places": {"fanout": (2,), "hidden": (16,), "places": 2, "crowd": 100},
    "two hops, 5 places": {"fanout": (5, 5), "hidden": (16, 16), "places": 5, "crowd": 100},
}

PLAYED = "one hop, 25 places"
"""What the Monte Carlo is of."""


def noise_for(occurrences: int) -> float:
    """The least noise for :data:`EPSILON`, to a thousandth, for steps as in the node curve."""
    low, high = 0.1, 1e4
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        events = PrivateSteps(middle, rate=RATE, steps=STEPS).events(occurrences, "zero-out", 2)
        low, high = (low, middle) if epsilon.epsilon(events, DELTA).epsilon <= EPSILON else (middle, high)
    return high


def removals(name: str, federation: sfg.Federation, noise: float) -> Removals:
    """Of the first owner, under one of the settings."""
    steps = PrivateSteps(noise, rate=RATE, steps=STEPS)
    return Removals(federation, sfg.FedSage(**SETTINGS[name]), replace(sfg.policies.plaintext(), steps=steps))


@contextmanager
def by_the_whole_list() -> Iterator[None]:
    """Links are ranked by a seeded permutation of all of them: what a removal must not be measured by."""
    real = private_training.capped_neighbours

    def order(links: torch.Tensor) -> torch.Tensor:
        return torch.randperm(links.shape[1], generator=torch.Generator().manual_seed(0))

    def table(links: torch.Tensor, nodes: int, most: int, own: Any, *rest: Any) -> torch.Tensor:
        return real(links, nodes, most, order, *rest)

    private_training.capped_neighbours = table  # type: ignore[assignment]
    try:
        yield
    finally:
        private_training.capped_neighbours = real


def _span(values: list[int]) -> list[int]:
    return [min(values), max(values)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="print the tables (the default without --json)")
    parser.add_argument("--json", action="store_true", help="print one object with rows")
    parser.add_argument("--nodes", type=int, default=20, help="random nodes")
    parser.add_argument("--hubs", type=int, default=5, help="nodes with the most links")
    parser.add_argument("--trials", type=int, default=20_000, help="steps in each world of the Monte Carlo")
    asked = parser.parse_args()
    federation = sfg.federate("pubmed", clients=3, seed=0)
    rows = []
    for name, settings in SETTINGS.items():
        alone = occurrences(settings["fanout"][0], len(settings["fanout"]))
        unaccounted = round(noise_for(alone), 2)
        at = removals(name, federation, noise_for(sfg.FedSage(**settings).occurrences("node")))
        random = torch.randperm(len(at.degrees), generator=torch.Generator().manual_seed(0))[: asked.nodes]
        some = {"random nodes": [int(v) for v in random], "hubs": at.hubs(asked.hubs)}
        found = {kind: [at.of(v) for v in nodes] for kind, nodes in some.items()}
        for kind, each in found.items():
            rows.append(
                {
                    "name": f"{name}, {kind}",
                    "size": len(each),
                    "degrees": _span([one.degree for one in each]),
                    "changed": _span([one.changed for one in each]),
                    "bound": at.bound,
                    "beyond": sum(one.beyond for one in each),
                    "noise": round(at.steps.noise, 2),
                    f"noise for {alone} records": unaccounted,
                }
            )
        if name == PLAYED:
            worst = max(found["hubs"], key=lambda one: one.changed)
            audited = at.audit(worst.node, DELTA, asked.trials)
            rows.append(
                {
                    "name": f"{name}, Monte Carlo of the worst hub",
                    "size": asked.trials,
                    "changed": worst.changed,
                    "planned": EPSILON,
                    "lower": round(audited.lower.epsilon, 3),
                    "refuted": audited.broken,
                }
            )
    with by_the_whole_list():
        at = removals(PLAYED, federation, 1.0)
        each = [at.of(v) for v in some["random nodes"][:3]]
    changed = _span([one.changed for one in each])
    rows.append({"name": "the control: links ranked by an order of the whole list", "changed": changed})
    if asked.json:
        print(json.dumps({"rows": rows}))
    if asked.table or not asked.json:
        for row in rows:
            print(" | ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
