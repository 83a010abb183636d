"""Runs what a table reads: each run once, side by side, resumable; estimates first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.code_digest import of_rooms
from secure_fedgraph.experiment.compare.runner import ended
from secure_fedgraph.experiment.compare.runs import kept, readable, run_point
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.pool import Tasks
from secure_fedgraph.experiment.reproduce.outcome import Results, wanted
from secure_fedgraph.experiment.reproduce.tables import Case, PaperTable
from secure_fedgraph.experiment.results import check_can_start, versions

CODE = "code.json"
"""Beside a result: a digest of the code that made it."""
CALCULATE = ("numpy", "torch", "torch-geometric")
"""Packages whose versions decide a figure."""
Say = Callable[[str, float | None], None]
"""Called with a run that ended, and the seconds that all others still need, where that is known."""


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
    table asks, so it stays when the package gains a setting. Whether all settings are still the same is the
    question of :func:`is_of`.
    """
    installed = versions()
    decides = {
        "config": {**case.config, "policy": "plaintext", "seed": seed},
        "versions": {name: installed[name] for name in CALCULATE},
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:20]


def is_of(result: Mapping[str, Any], case: Case, seed: int) -> bool:
    """Whether a result was made with today's settings and packages.

    A setting that it does not name counts as its default.
    """
    installed, with_which = versions(), result.get("versions")
    if not isinstance(with_which, dict) or any(with_which.get(one) != installed[one] for one in CALCULATE):
        return False
    if result.get("seed") != seed:
        return False
    made = experiment_of(case, seed)
    usual = load(None, {key: case.config[key] for key in ("algorithm", "data")}, [])
    return _agree(result["config"], _settings(made), _settings(usual))


def _settings(experiment: Experiment) -> dict[str, Any]:
    training = experiment.make_algorithm().settings.model_dump(mode="json")
    return {**experiment.model_dump(mode="json", exclude={"training"}), "training": training}


def _agree(old: Mapping[str, Any], new: Mapping[str, Any], usual: Mapping[str, Any]) -> bool:
    if not set(old) <= {*new, "logging"}:
        return False
    for key, value in new.items():
        if key == "training" and isinstance(old.get(key), dict):
            if not _agree(old[key], value, usual[key]):
                return False
        elif old.get(key, usual.get(key)) != value:
            return False
    return True


@dataclass
class Reproduction:
    """The runs of one table.

    Args:
        table: which.
        seeds: of every run.
        out: the folder that holds all tables' runs.
    """

    table: PaperTable
    seeds: Sequence[int]
    out: Path
    results: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    codes: set[str] = field(default_factory=set)
    _keys: dict[tuple[str, int], str] = field(default_factory=dict)

    def check(self, with_data: bool = True) -> None:
        """Finds what keeps a case from running, before anything does: a setting or data that are missing.

        Such a case is not run, and its cells say why.

        Args:
            with_data: read and divide the data too, which takes minutes for large ones.
        """
        data: set[str] = set()
        for case in self.table.cases:
            try:
                experiment = experiment_of(case, self.seeds[0])
                experiment.make_algorithm()
                if with_data and experiment.data not in data:  # reading and dividing data takes seconds
                    check_can_start(experiment)
                    data.add(experiment.data)
            except BadInput as error:
                self.failures[case.name] = str(error)

    def look(self) -> list[tuple[Case, int]]:
        """Reads what earlier calls finished. Returns what is left."""
        left = []
        for case, seed in wanted(self.table, self.seeds):
            if case.name in self.failures:
                continue
            self._keys[case.name, seed] = run_key(case, seed)
            if not self._take(case, seed):
                left.append((case, seed))
        return left

    def estimate(self, left: Sequence[tuple[Case, int]], workers: int) -> float:
        """Seconds that the rest takes: by the same case's finished runs, else by what it is known to take."""
        return sum(self._seconds(case) for case, _ in left) / workers

    def run(self, left: Sequence[tuple[Case, int]], pool: Tasks, workers: int, say: Say) -> None:
        """Makes the runs that are left. Where one fails, its cells say so, and the others go on."""
        waiting = list(left)
        for (case, seed), made in ended(pool, waiting, lambda one: pool.start(one, _run, *one, self.out)):
            if not isinstance(made, float):
                self.failures.setdefault(case.name, made.reason)
            elif not self._take(case, seed):
                self.failures.setdefault(case.name, "the run ended and left no result")
            say(f"{case.name}, seed {seed}", self.estimate(waiting, workers) if waiting else None)

    def finished(self) -> Results:
        """A case's name -> seed -> its result."""
        return self.results

    def _seconds(self, case: Case) -> float:
        took = [float(one["seconds"]) for one in self.results.get(case.name, {}).values()]
        return sum(took) / len(took) if took else 60 * case.minutes

    def _take(self, case: Case, seed: int) -> bool:
        folder = folder_of(case, seed, self.out)
        result = kept(folder, self._keys[case.name, seed])
        if result is None or ("config" in result and not is_of(result, case, seed)):
            return False
        if "reason" in result:
            self.failures.setdefault(case.name, str(result["reason"]))
            return True
        self.results.setdefault(case.name, {})[seed] = result
        made_by = readable(folder / CODE, self.out) or {}
        self.codes.add(str(made_by.get("code", "unknown")))
        return True


def _run(case: Case, seed: int, out: Path) -> float:
    """Makes one run, unless another call makes it meanwhile: that one is waited for. Returns its seconds."""
    from secure_fedgraph.experiment.results import write_json

    folder, key = folder_of(case, seed, out), run_key(case, seed)
    files.private_folder(folder.parent, out)
    with files.lock(Path(f"{folder}.lock")):
        made = kept(folder, key)
        if made is not None and "reason" not in made and is_of(made, case, seed):
            return float(made["seconds"])
        if made is not None:  # a result of other settings: it would be in the way
            files.remove_folder(folder, out)
        took = run_point(experiment_of(case, seed).model_dump(mode="json"), folder, key)
        write_json(folder / CODE, {"code": of_rooms()}, out)
    return took
