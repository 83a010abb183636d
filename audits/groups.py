"""A group of cells: one run and all attacks on it. What it takes to run one, and how its cells are kept."""

from __future__ import annotations

import hashlib
import inspect
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import attacks
import audits
import secure_fedgraph
from audits.choices import AS_CONFIGURED, CANARIES, Variant
from secure_fedgraph.algorithms.own import algorithm_named
from secure_fedgraph.config import Experiment, load
from secure_fedgraph.errors import BadInput
from secure_fedgraph.protocol.transcript import SERVER
from secure_fedgraph.results import read_json, versions, write_json

CELLS = "cells"
SCHEMA = "secure-fedgraph/group/1"
PARTS = {"cells", "runs", "reconstructions", "conformance", "empirical", "seconds"}
"""What a group's file holds."""


@dataclass(frozen=True)
class Group:
    """One run of a grid, and by whom and how it is attacked.

    Args:
        chosen: the experiment with its policy and seed.
        variant: the settings over it, and the attacks.
        who: adversaries.
        controls, effort: as :func:`audits.grid.audit`'s.
        canaries: how many its runs are to have in place of data; 0 for a run that is attacked.
    """

    chosen: Experiment
    variant: Variant
    who: tuple[str, ...]
    controls: tuple[str, ...] | None = None
    effort: float | None = None
    canaries: int = 0

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
        """What would be run, for whoever has to say that it was not."""
        about = {"algorithm": self.chosen.algorithm, "policy": self.chosen.policy, "seed": self.chosen.seed}
        if self.canaries:
            return [{**about, "attack": CANARIES, "adversary": SERVER, "variant": self.variant.name}]
        return [
            {**about, "attack": attack.id, "adversary": adversary, "variant": self.variant.name}
            for attack in self.variant.attacks
            for adversary in attack.adversaries
            if adversary in self.who
        ]

    @property
    def key(self) -> str:
        """Of everything that decides its cells: configuration, attacks, their code, and versions."""
        experiment = self.experiment
        kind = algorithm_named(experiment.algorithm)
        decides = {
            "config": experiment.model_dump(mode="json"),
            "training": experiment.make_algorithm().settings.model_dump(mode="json"),
            "algorithm": _source(kind),
            "variant": [self.variant.name, dict(self.variant.settings)],
            "attacks": {attack.id: _source(attack) for attack in self.variant.attacks},
            "code": _judging(),
            "who": self.who,
            "controls": self.controls,
            "effort": self.effort,
            "canaries": self.canaries,
            "versions": versions(),
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:20]


def _source(kind: type[Any]) -> str:
    """A digest of the files that a class and its bases stand in, and of what lies beside a user's own.

    Cells of other code are not these. What a user's module may import from its own folder counts, imported
    or not: what is loaded changes while a grid runs, and its keys must not.
    """
    files: set[Path] = set()
    for base in kind.__mro__:
        with suppress(TypeError, OSError):  # a notebook's, or the interpreter's
            files.add(Path(inspect.getsourcefile(base) or "").resolve())
    for folder in {path.parent for path in files if path.is_file() and not _is_installed(path)}:
        packages = (init.parent for init in folder.glob("*/__init__.py") if not _is_installed(init))
        files |= {path for package in packages for path in package.rglob("*.py")} | set(folder.glob("*.py"))
    digests = [_digest(str(path)) for path in sorted(files) if path.is_file()]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16] if digests else kind.__qualname__


def _is_installed(path: Path) -> bool:
    """Whether it belongs to Python, to an installed package, or to the rooms that :func:`_judging` covers."""
    return "site-packages" in path.parts or any(
        room in path.parents for room in (*_rooms(), Path(inspect.__file__).resolve().parent)
    )


def _rooms() -> tuple[Path, ...]:
    return tuple(Path(room.__file__ or "").resolve().parent for room in (attacks, audits, secure_fedgraph))


@lru_cache(maxsize=1)
def _judging() -> str:
    """A digest of all that attacks share, grants what they know and scores them, and of what is audited.

    Pages are made of cells and make none.
    """
    files = sorted(path for room in _rooms() for path in room.rglob("*.py") if path.parent.name != "report")
    whole = "".join(f"{path.name}{_digest(str(path))}" for path in files)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@lru_cache(maxsize=256)
def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if Path(path).is_file() else ""


def keep(out: Path, group: Group, found: dict[str, Any]) -> None:
    """Writes a group's cells, whole or not at all."""
    write_json(out / CELLS / f"{group.key}.json", {"schema": SCHEMA, "group": group.name, **found})


def kept(out: Path, group: Group) -> dict[str, Any] | None:
    """A group's cells from an earlier call; None where there are none, whole, of this very configuration."""
    path = out / CELLS / f"{group.key}.json"
    if not path.is_file():
        return None
    try:
        found = read_json(path, "group")
    except BadInput:  # torn: it is run again
        return None
    return found if set(found) >= PARTS else None
