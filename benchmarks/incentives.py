"""What values and payoffs of FairGraphFL give away: who is of low quality, and who is a member.

    python benchmarks/incentives.py [--data proteins] [--first 0] [--seeds 3] [--rounds 10] [--json]

**Quality.** Agents of low, medium and high quality as in ``fairness.py``. Whoever reads the payoffs of the
last round guesses that who is paid less is of lower quality: the AUC of that for low against high, for the
printed and the shared diversity, and for the shared one under a budget for one graph (``local_dp``).

**Membership.** Who knows all other graphs, and reads an agent's diversity to the last digit, sees whether a
graph is among them where its removal changes that number: the share of training graphs of which this holds.
Noise bounds it for the shared one: (e^epsilon - 1) / (e^epsilon + 1) is the advantage at most.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from statistics import fmean
from typing import Any

import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fairgraphfl import shared_structure
from secure_fedgraph.graph import motifs

SPLIT = {"perturbed": True, "own_test": 0.3}
NOISED = (8.0, 1.0)
KEEP, RINGS = 0.85, 4


def auc(low: list[float], high: list[float]) -> float:
    """The chance that one of high quality is paid more than one of low."""
    wins = [1.0 if h > one else 0.5 if h == one else 0.0 for one in low for h in high]
    return fmean(wins)


def payoffs(
    federation: sfg.Federation, rounds: int, seed: int, epsilon: float | None, **settings: Any
) -> Any:
    """Agent -> what it was paid in the last round."""
    algorithm = sfg.FairGraphFL(**settings)
    if epsilon is None:
        run = sfg.train(algorithm, federation, "plaintext", rounds=rounds, seed=seed)
    else:
        budget = sfg.Budget(epsilon, unit="graph")
        run = sfg.train(algorithm, federation, "local_dp", rounds=rounds, seed=seed, budget=budget)
    return algorithm.notes(run.state)["payoffs"]


def members_by_motifs(federation: sfg.Federation) -> float:
    """The share of graphs whose removal changes their agent's printed diversity."""
    found = {
        name: motifs.motifs_of(graph, graph.train_mask.nonzero().flatten(), RINGS)
        for name, graph in federation.owners.items()
    }
    listed = {name: _listed(one, torch.ones(one.graphs, dtype=torch.bool)) for name, one in found.items()}
    changed, graphs = 0, 0
    for name, one in found.items():
        others = set().union(*(codes for other, codes in listed.items() if other != name))
        before = len(listed[name]) / len(others | listed[name])
        for graph in range(one.graphs):
            kept = torch.ones(one.graphs, dtype=torch.bool)
            kept[graph] = False
            codes = _listed(one, kept)
            changed += len(codes) / len(others | codes) != before
            graphs += 1
    return changed / graphs


def _listed(one: motifs.Motifs, kept: torch.Tensor) -> set[tuple[int, ...]]:
    entries = kept[one.graph]
    place = kept.cumsum(0) - 1
    codes, of = one.codes, one.motif[entries]
    there, number = of.unique(return_inverse=True)
    rest = motifs.Motifs(codes[there], place[one.graph[entries]], number, one.count[entries], int(kept.sum()))
    return {tuple(code) for code in rest.codes[motifs.most_distinctive(rest, KEEP)].tolist()}


def members_by_structure(federation: sfg.Federation) -> float:
    """The share of graphs that add anything to their agent's structure above chance."""
    added = []
    for graph in federation.owners.values():
        rows = graph.train_mask.nonzero().flatten()
        added += [
            float(shared_structure.above_chance(*part)) != 0
            for part in shared_structure.links_of(graph, rows)
        ]
    return fmean(added)


def table(args: argparse.Namespace) -> dict[str, Any]:
    """Means over seeds."""
    ways: dict[str, tuple[float | None, dict[str, Any]]] = {
        "printed": (None, {}),
        "shared": (None, {"diversity": "shared"}),
    }
    unread = {"diversity": "shared", "copies": "own", "prototypes": "none"}
    ways |= {f"shared, epsilon {one:g}": (one, unread) for one in NOISED}
    quality: dict[str, list[float]] = {way: [] for way in ways}
    printed, shared = [], []
    for seed in range(args.first, args.first + args.seeds):
        federation = sfg.federate(args.data, clients=10, partition="random", seed=seed, split=SPLIT)
        groups = federation.facts["partition"]["quality"]
        for way, (epsilon, settings) in ways.items():
            paid = payoffs(federation, args.rounds, seed, epsilon, **settings)
            low, high = ([paid[a] for a in groups if groups[a] == group] for group in ("low", "high"))
            quality[way].append(auc(low, high))
        printed.append(members_by_motifs(federation))
        shared.append(members_by_structure(federation))
    bounds = {f"shared, epsilon {one:g}": math.tanh(one / 2) for one in NOISED}
    return {
        "quality_auc": {way: round(fmean(values), 3) for way, values in quality.items()},
        "membership": {
            "printed": round(fmean(printed), 3),
            "shared": round(fmean(shared), 3),
            **{way: f"an advantage of {bound:.3f} at most" for way, bound in bounds.items()},
        },
        "seeds": args.seeds,
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="proteins")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # that plaintext protects nothing is the point
    found = table(args)
    if args.json:
        print(json.dumps(found))
        return
    for what in ("quality_auc", "membership"):
        for way, figure in found[what].items():
            print(f"{what:12} {way:22} {figure}")


if __name__ == "__main__":
    main()
