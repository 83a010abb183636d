"""Runs what a table reads: each run once, side by side, resumable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secure_fedgraph.core import files
from secure_fedgraph.experiment.code_digest import of_rooms
from secure_fedgraph.experiment.compare.runner import ended
from secure_fedgraph.experiment.compare.runs import kept, readable, run_point
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.pool import Failed, Tasks
from secure_fedgraph.experiment.reproduce.tables import Case, PaperTable
from secure_fedgraph.experiment.results import versions, write_json

CODE = "code.json"
"""Beside a result: a digest of the code that made it."""
CALCULATE = ("numpy", "torch", "torch-geometric")
"""Packages whose versions decide a figure."""


def experiment_of(case: Case, seed: int) -> Experiment:
    """The experiment of one seed. Nothing protects it: these are the papers' own figures."""
    return load(None, {**case.config, "policy": "plaintext", "seed": seed}, [])


def folder_of(case: Case, seed: int, out: Path) -> Path:
    """Where a seed of a case is kept."""
    return out / "runs" / case.folder / f"seed-{seed}"


def run_key(case: Case, seed: int) -> str:
    """A digest of what a table asks of a run: its configuration, and the versions of packages that calculate.

    A table takes days to make, and the code changes meanwhile. So each result keeps a digest of the code that
    made it, and a table says of how many versions of the code its figures are. The key holds only what the
    table asks, so it stays when the package gains a setting.
    """
    installed = versions()
    decides = {
        "config": {**case.config, "policy": "plaintext", "seed": seed},
        "versions": {name: installed[name] for name in CALCULATE},
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:20]


@dataclass
class Reproduction:
    """The runs of one table.

    Args:
        table: which.
        seeds: of every run.
        out: the folder that holds all tables' runs.
        results: what is finished.
        failures: a case's name -> why a run of it is not.
        codes: digests of the code that made the results.
    """

    table: PaperTable
    seeds: Sequence[int]
    out: Path
    results: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    codes: set[str] = field(default_factory=set)

    def look(self) -> list[tuple[Case, int]]:
        """Reads what earlier calls finished. Returns what is left: one seed of everything first."""
        every = [(case, seed) for seed in self.seeds for case in self.table.cases]
        return [(case, seed) for case, seed in every if not self._take(case, seed)]

    def run(self, left: Sequence[tuple[Case, int]], pool: Tasks, say: Callable[[str], None]) -> None:
        """Makes the runs that are left. Where one fails, its cells say so, and the others go on."""

        def start(one: tuple[Case, int]) -> None:
            at = folder_of(*one, self.out)
            pool.start(one, _run, *one, self.out, of=experiment_of(*one), at=at)

        for (case, seed), made in ended(pool, list(left), start):
            if isinstance(made, Failed):
                self.failures.setdefault(case.name, made.reason)
            elif not self._take(case, seed):
                self.failures.setdefault(case.name, "the run ended and left no result")
            say(f"{case.name}, seed {seed}")

    def _take(self, case: Case, seed: int) -> bool:
        folder = folder_of(case, seed, self.out)
        result = kept(folder, run_key(case, seed))
        if result is not None and "reason" in result:
            self.failures.setdefault(case.name, str(result["reason"]))
        elif result is not None:
            self.results.setdefault(case.name, {})[seed] = result
            made_by = readable(folder / CODE, self.out) or {}
            self.codes.add(str(made_by.get("code", "unknown")))
        return result is not None


def _run(case: Case, seed: int, out: Path) -> float:
    """Makes one run, unless another call makes it meanwhile: that one is waited for. Returns its seconds."""
    folder = folder_of(case, seed, out)
    files.private_folder(folder.parent, out)
    with files.lock(Path(f"{folder}.lock")):
        took = run_point(experiment_of(case, seed).model_dump(mode="json"), folder, run_key(case, seed))
        if files.size_of(folder / CODE) is None:
            write_json(folder / CODE, {"code": of_rooms()}, out)
    return took
