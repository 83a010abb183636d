"""What a paper's table is here: its cells, the runs behind them, and how near ours have to come."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.code_digest import of_rooms
from secure_fedgraph.experiment.compare.runner import ended
from secure_fedgraph.experiment.compare.runs import kept, readable, run_point
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.pool import Failed, Tasks
from secure_fedgraph.experiment.results import versions, write_json

Selection = Literal["last", "best_by_validation", "best_on_test"]
"""Which round counts: the last, the best by validation, or, as some papers print, the best on test."""


@dataclass(frozen=True)
class Case:
    """One experiment, which several cells may read.

    Args:
        name: short and of its own; runs of equal cases are shared by tables.
        config: keys of an :class:`~secure_fedgraph.experiment.config.Experiment`.
        minutes: about how long one seed takes on one core, for the estimate before anything has run.
    """

    name: str
    config: Mapping[str, Any] = field(hash=False)
    minutes: float = 5.0

    @property
    def folder(self) -> str:
        """A folder's name."""
        return re.sub(r"[^a-z0-9.+=]+", "-", self.name.lower())


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Args:
        row, column: as the paper names them.
        paper: its figure; None where it prints none and ours stands beside.
        tolerance: how far ours may be from it.
        measure: a key of a result's accuracies (``global``, ``local``, ``auc``, ``mae``), or ``fairness``.
        case: the experiment; None where it cannot be run.
        alone: for ``fairness``: the same owners by themselves.
        why_not: why it cannot be run.
        source: where the paper's figure is from, where not from the paper's own table.
    """

    row: str
    column: str
    paper: float | None
    tolerance: float
    measure: str = "global"
    case: Case | None = None
    alone: Case | None = None
    why_not: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if (self.case is None) != bool(self.why_not):
            raise BadInput(f"{self.row}, {self.column}: a cell has a case, or the reason why it has none")


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        name: ``fedego-2``: the algorithm, and the table's number in its paper.
        title: what it shows.
        paper: where it is from.
        seeds: how many the paper has, or the anchors ask for.
        selection: which round counts.
        cells: row by row.
    """

    name: str
    title: str
    paper: str
    seeds: int
    selection: Selection
    cells: tuple[Cell, ...]

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every experiment that the cells read, each once."""
        every = [case for cell in self.cells for case in (cell.case, cell.alone) if case is not None]
        return tuple({case.name: case for case in every}.values())

    def only(self, words: tuple[str, ...]) -> PaperTable:
        """The cells whose row or column holds one of the words; all where there are none.

        Raises:
            BadInput: for a word that no cell holds.
        """
        held = {
            word: [one for one in self.cells if word and word.lower() in f"{one.row} {one.column}".lower()]
            for word in words
        }
        if lost := [word for word, cells in held.items() if not cells]:
            raise BadInput(
                f"--only {lost[0][:60]!r}: no cell of {self.name} is named so; --finished prints them all"
            )
        kept = tuple(one for one in self.cells if any(one in cells for cells in held.values()))
        return replace(self, cells=kept) if words else self


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
