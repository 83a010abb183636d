"""The fixed, public suite of the bench: its tasks, how their data are handed out, and what is run on them."""

from __future__ import annotations

import csv
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.graph.data.sources import VARIABLE, data_folder, readable
from secure_fedgraph.graph.silos.reading import data_at
from secure_fedgraph.graph.tables.drafting import draft
from secure_fedgraph.graph.tables.schema import write_schema

GERMAN = "tables/german"
"""Below ``$SECURE_FEDGRAPH_DATA``."""


@dataclass(frozen=True)
class Task:
    """What is learned from which data.

    Args:
        title: for people.
        unit: whose data a budget is for: the data's own record.
        algorithms: the package's own that run by default, the one of ``--quick`` first.
        attacks: those that fit, by id.
        seconds: about what one run takes on one core.
        tolerance: how far apart the scores of two draws of a run's noise may be, and those of other packages.
        config: keys of the experiment; ``tables``, the name of tables that are handed out by ``shares``.
        partitions: name -> further keys.
        policy: under which families take their private form.
        quick: further keys of ``--quick``.
    """

    title: str
    unit: str
    algorithms: Sequence[str]
    attacks: Sequence[str]
    seconds: float
    tolerance: float
    config: Mapping[str, Any]
    partitions: Mapping[str, dict[str, Any]]
    policy: str = "masked"
    quick: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """All tasks, and what is run on each."""

    epsilons: Sequence[float]
    seeds: int
    quick_epsilons: Sequence[float]
    tasks: Mapping[str, Task]

    @property
    def digest(self) -> str:
        """Of everything in it: results of two suites are not compared."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def parts(self, names: Sequence[str] = (), quick: bool = False) -> list[Part]:
        """The tasks of these names, all by default, each with each of its partitions.

        Raises:
            BadInput: for an unknown name.
        """
        if unknown := [name for name in names if name not in self.tasks]:
            raise unknown_name("task", unknown[0], self.tasks)
        few = slice(1 if quick else None)
        budgets, seeds = (self.quick_epsilons, range(1)) if quick else (self.epsilons, range(self.seeds))
        return [
            Part(
                name,
                partition,
                task,
                task.algorithms[few],
                budgets,
                seeds,
                keys | task.quick if quick else keys,
            )
            for name, task in self.tasks.items()
            if not names or name in names
            for partition, keys in list(task.partitions.items())[few]
        ]


@dataclass(frozen=True)
class Part:
    """A task with one partition: one comparison.

    Args:
        task, partition: their names.
        of: the task.
        algorithms: that run by default.
        epsilons: the budgets, beside no privacy.
        seeds: of the runs.
        keys: of the experiment, beside the task's.
    """

    task: str
    partition: str
    of: Task
    algorithms: Sequence[str]
    epsilons: Sequence[float]
    seeds: Sequence[int]
    keys: dict[str, Any]

    def folder(self, out: Path) -> Path:
        """Where its runs are."""
        return out / self.task / self.partition

    def experiment(self, out: Path) -> Experiment:
        """What all of its runs share; tables are written first.

        Raises:
            BadInput: for data that are not there.
        """
        keys = {**self.of.config, **self.keys}
        if keys.pop("tables", None) is not None:
            keys |= _banks(keys.pop("shares", ()), self.folder(out) / "tables")
        named = {"algorithm": self.of.algorithms[0], "policy": self.of.policy, "unit": self.of.unit}
        return load(None, {**named, **keys}, [])


def _banks(shares: Sequence[int], folder: Path) -> dict[str, Any]:
    """German credit at several banks: applicants in the published order, by shares in percent.

    Links between banks are nobody's. The first bank drafts the schema, as ``silo describe`` does.

    Raises:
        BadInput: where the files are not there, or damaged.
    """
    root = data_folder()
    if root is None or not (root / GERMAN / "german.csv").is_file():
        raise BadInput(f"German credit is looked for in ${VARIABLE}/{GERMAN}: put german.csv and "
                       "german_edges.txt there")  # fmt: skip
    with readable(root / GERMAN):
        head, *rows = csv.reader(files.read(root / GERMAN / "german.csv").decode().splitlines())
        links = [tuple(map(float, line.split())) for line in
                 files.read(root / GERMAN / "german_edges.txt").decode().splitlines()]  # fmt: skip
    silos, start = dict[str, str](), 0
    for name, share in zip("abc", shares, strict=True):
        end = start + len(rows) * share // 100
        inside = [[f"{one:.0f}" for one in pair] for pair in links if all(start <= one < end for one in pair)]
        applicants = [[number, *row] for number, row in enumerate(rows[start:end], start)]
        place = files.private_folder(folder / f"bank-{name}", folder)
        tables: dict[str, list[list[Any]]] = {
            "nodes": [["id", *head], *applicants],
            "edges": [["source", "target"], *inside],
        }
        for kind, cells in tables.items():
            text = "\n".join(",".join(map(str, row)) for row in cells) + "\n"
            files.write(place / f"{kind}.csv", [text.encode()], private=False)
        silos[place.name], start = f"{place}/", end
    first: Any = data_at(silos["bank-a"])
    write_schema(draft(first.nodes, first.links, label="GoodCustomer"), folder / "schema.toml")
    return {"silos": silos, "tables": str(folder / "schema.toml")}


def read_suite(path: Path) -> Suite:
    """The suite of a file."""
    held = tomllib.loads(path.read_text(encoding="utf-8"))
    return Suite(**{**held, "tasks": {name: Task(**task) for name, task in held["tasks"].items()}})


SUITE = read_suite(Path(__file__).with_name("suite.toml"))
