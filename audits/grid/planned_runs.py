"""A planned run of a grid with the attacks on it: what it needs to run, and how its cells are kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import secure_fedgraph
from secure_fedgraph import attacks, audits
from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.audits.grid.choices import AS_CONFIGURED, Variant, unscored
from secure_fedgraph.experiment.code_digest import of_code, of_rooms
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import read_json, versions, write_json
from secure_fedgraph.experiment.schema import AuditResult

CELLS = "cells"
SCHEMA = "secure-fedgraph/group/1"
PARTS = {"cells", "runs", "reconstructions", "conformance", "empirical", "seconds"}
"""What the file of a run's cells holds."""
ROOMS = tuple(Path(room.__file__ or "").resolve().parent for room in (attacks, audits, secure_fedgraph))
"""The folders of the attacks, of the audits, and of the audited package."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid, and by whom and how it is attacked.

    Args:
        chosen: the experiment with its policy and seed.
        variant: the settings over it, and the attacks.
        who: adversaries.
        effort: as :func:`secure_fedgraph.audits.grid.grid.audit`'s.
        probed: whether its algorithm and protections are called again on little data, besides.
    """

    chosen: Experiment
    variant: Variant
    who: tuple[str, ...]
    effort: float | None = None
    probed: bool = False

    @property
    def experiment(self) -> Experiment:
        """With the variant's settings."""
        changes = [f"{key}={json.dumps(value)}" for key, value in self.variant.settings.items()]
        return load(None, self.chosen.model_dump(), changes)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.chosen.algorithm}, {self.chosen.policy}, seed {self.chosen.seed}: {self.variant.name}"

    @property
    def place(self) -> str:
        """Where its run goes, below the audit's folder."""
        parts = self.chosen.algorithm, self.chosen.policy, str(self.chosen.seed), self.variant.name
        return "runs/" + "-".join(parts).replace(" ", "-").replace(":", ".").replace("/", "_")

    @property
    def configured(self) -> bool:
        """Whether it is the run as configured, and no control."""
        return self.variant.name == AS_CONFIGURED

    def cells(self) -> list[dict[str, Any]]:
        """Its cells without scores, for the list of what was not run."""
        return [
            unscored(self.chosen, attack, adversary, self.variant.name)
            for attack in self.variant.attacks
            for adversary in attack.adversaries
            if adversary in self.who
        ]

    @property
    def key(self) -> str:
        """A digest of everything that decides its cells: configuration, attacks, their code, and versions."""
        experiment = self.experiment
        kind = algorithm_named(experiment.algorithm)
        decides = {
            "config": experiment.model_dump(mode="json"),
            "training": experiment.make_algorithm().settings.model_dump(mode="json"),
            "algorithm": of_code(kind, *ROOMS),
            "of_others": [of_code(function, *ROOMS) for function in experiment.of_others],
            "silos": experiment.digest_of_silos,
            "variant": [self.variant.name, dict(self.variant.settings)],
            "attacks": {attack.id: of_code(attack, *ROOMS) for attack in self.variant.attacks},
            "code": of_rooms(*ROOMS),
            "who": self.who,
            "effort": self.effort,
            "probed": self.probed,
            "versions": versions(),
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:20]


def write_cells(out: Path, planned: PlannedRun, content: dict[str, Any]) -> None:
    """Writes a run's cells, whole or not at all."""
    write_json(out / CELLS / f"{planned.key}.json", {"schema": SCHEMA, "group": planned.name, **content}, out)


def read_cells(out: Path, planned: PlannedRun) -> dict[str, Any] | None:
    """A run's cells from an earlier call of the same configuration; None where there are no whole ones."""
    path = out / CELLS / f"{planned.key}.json"
    if not path.exists():
        return None
    try:
        content = read_json(path, "group", out)
        kept = {part: content[part] for part in PARTS}
        AuditResult.model_validate({"schema": "secure-fedgraph/audit/1", "config": {}, **kept})
    except (ValueError, KeyError):  # torn, or it holds what no audit writes: it is run again
        return None
    return None if None in kept.values() else kept
