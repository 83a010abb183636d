"""The points of a comparison: an algorithm under a policy and a budget, and the baselines beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.experiment.config import Experiment

NO_PRIVACY, ALONE, NOISED, SILENT = "no privacy", "no collaboration", "budget", "as configured"
WITHOUT_GRAPH = "without graph"


@dataclass(frozen=True)
class Point:
    """One algorithm under one policy and one budget.

    Args:
        kind: why it is there: a budget, a policy as configured, one of the two baselines, or a budget's
            reference without a graph.
        algorithm, policy: names.
        epsilon: the budget; None where there is none.
        config: the whole experiment, but for the seed.
    """

    kind: str
    algorithm: str
    policy: str
    epsilon: float | None
    config: Mapping[str, Any] = field(hash=False)

    @property
    def name(self) -> str:
        """What its folder is called."""
        budget = "" if self.epsilon is None else f"-{self.epsilon!r}".removesuffix(".0")
        ending = "-without-graph" if self.kind == WITHOUT_GRAPH else ""
        return f"{self.algorithm}-{self.policy}{budget}{ending}".replace("+", "plus").replace(":", ".")

    def experiment(self, seed: int) -> Experiment:
        """With one seed."""
        return Experiment(**{**self.config, "seed": seed})

    def folder(self, out: Path) -> Path:
        """Where its runs go, below the comparison's folder."""
        return out / "runs" / self.name

    def run_folder(self, out: Path, seed: int) -> Path:
        """Where the run with one seed goes."""
        return self.folder(out) / f"seed-{seed}"


def points(
    base: Experiment, algorithms: Sequence[str], policies: Sequence[str], epsilons: Sequence[float]
) -> list[Point]:
    """Every point, the two baselines of each algorithm among them.

    Every algorithm runs on the same data, partition and seeds. An infinite epsilon is the baseline without
    privacy. A policy without noise has one point at client level, whatever the budgets. If one of the
    algorithms is itself the local-only one, it is the baseline without collaboration and appears only once.

    Raises:
        BadInput: for an algorithm, or one of its settings, that is unknown or does not fit the partition.
    """
    by_name: dict[str, Point] = {}

    def add(kind: str, experiment: Experiment) -> None:
        config = experiment.model_dump(mode="json")
        point = Point(kind, experiment.algorithm, experiment.policy, experiment.epsilon, config)
        known = by_name.setdefault(point.name, point)
        if kind == ALONE:
            by_name[point.name] = replace(known, kind=ALONE)

    for algorithm in algorithms:
        mine = base.model_copy(update={"algorithm": algorithm, "epsilon": None})
        mine.make_algorithm()
        drawn: dict[str, Any] = dict.fromkeys(("links", "labels", "features"))
        bare: dict[str, Any] = {
            "protection": {},
            "steps": {},
            **drawn,
            "policy": "plaintext",
            "dropouts": 0.0,
        }
        add(NO_PRIVACY, mine.model_copy(update=bare))
        alone = algorithm_named(algorithm_named(algorithm).alone)
        if base.partition in alone.partitions:
            settings = {k: v for k, v in mine.training.items() if k in alone.Settings.model_fields}
            # no server gives it a model
            unlimited = {"algorithm": alone.name, "training": settings, "broadcast": {}}
            add(ALONE, mine.model_copy(update=bare | unlimited))
        for policy in policies:
            budgets: list[float | None] = [e for e in epsilons if math.isfinite(e)]
            for epsilon in budgets or [None]:
                # an infinite budget that is asked for by itself is none, and not the default one
                budgeted = mine.model_copy(update={"epsilon": epsilon})
                changed = budgeted.with_policy(policy, by_default=not epsilons)
                add(SILENT if changed.epsilon is None else NOISED, changed)
    return list(by_name.values())
