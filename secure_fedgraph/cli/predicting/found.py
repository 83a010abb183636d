"""A released model wherever it lies: in a run's folder, in a file alone, or with a silo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.plugins import check_own_name
from secure_fedgraph.cli.exporting.model import fitting, of_run
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.silo_folder import MODEL, RUNS, SiloFolder
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.experiment import released
from secure_fedgraph.experiment.released import Released
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.graph.silos.reading import saved_weights
from secure_fedgraph.graph.tables.schema import NAME as SCHEMA
from secure_fedgraph.graph.tables.schema import TableSchema, read_schema


@dataclass(frozen=True)
class Found:
    """A model that is ready to predict.

    Args:
        algorithm: that released it.
        state: what it released.
        schema: what it was built for.
        tables: by which tables become what it reads; None where it learned from none.
        classes: what its outputs are called: classes or labels; empty of a number.
        threshold: of the run's validation nodes; None where nobody chose one.
    """

    algorithm: Algorithm
    state: Mapping[str, Any]
    schema: Schema
    tables: TableSchema | None
    classes: tuple[str, ...]
    threshold: float | None = None

    @property
    def positive(self) -> int:
        """The number of the class that a threshold is for."""
        return self.schema.positive if self.tables is None else self.tables.positive


def found(place: Path, algorithm: str | None, schema: Path | None) -> Found:
    """The model at a place, and the schema of tables that goes with it.

    Args:
        place: a folder of ``run``; a released model's file; a silo's folder of one run, or the model in it.
        algorithm: the own algorithm that the user named, where the model is of one.
        schema: a file that the user named.

    Raises:
        BadInput: where there is no model, where it is damaged or of another run, and for schemas of tables
            that differ.
    """
    if (place / "result.json").is_file():
        return _of_run(place, algorithm, schema)
    folder = place if place.is_dir() else place.parent
    if (folder / MODEL).is_file() and (place.is_dir() or place.name == MODEL):
        return _of_silo(folder, schema)
    if place.is_dir():
        raise BadInput(
            f"{place} holds no finished run: give a folder with result.json and {released.NAME}, a model's "
            "file, or a silo's folder of one run"
        )
    kept = released.read_file(place)
    if not kept.algorithm:
        raise BadInput(f"{place} does not say which algorithm it is of: give the folder of its run")
    check_own_name(kept.algorithm, algorithm, folder)
    tables = _agreed(
        kept.schema, {str(place): kept.tables, **_read(folder / SCHEMA, needed=False), **_read(schema)}
    )
    return _ready(kept, kept.algorithm, tables)


def _of_run(folder: Path, algorithm: str | None, schema: Path | None) -> Found:
    run, name, kept = of_run(folder, algorithm)
    if kept.algorithm and kept.algorithm != name:
        raise BadInput(
            f"{folder / released.NAME} is of {kept.algorithm[:60]!r}, and the result beside it of "
            f"{name[:60]!r}: put copies of both back that are of one run"
        )
    beside = _read(folder / SCHEMA, needed=False)
    tables = _agreed(kept.schema, {str(folder / released.NAME): kept.tables, **beside, **_read(schema)})
    noted = (run.data.model_extra or {}).get("tables")
    if tables is not None and isinstance(noted, str) and noted != tables.digest:
        raise BadInput(
            f"{folder / 'result.json'} is of tables by another schema (digest {noted[:16]}…, and "
            f"{tables.digest[:16]}… is here): put the run's {SCHEMA} back"
        )
    threshold, names = run.metrics.get("threshold"), tuple(run.data.class_names)
    if tables is not None and names and names != tables.class_names:
        raise BadInput(
            f"{folder / 'result.json'} names classes {', '.join(names)[:80]!r}, and the schema "
            f"{', '.join(tables.class_names)[:80]!r}: put copies of both back that are of one run"
        )
    return _ready(kept, name, tables, names, None if threshold is None else threshold.value)


def _of_silo(folder: Path, schema: Path | None) -> Found:
    """A silo's model: what it was built for stands in the federation's file that the silo approved."""
    if folder.parent.name != RUNS:
        raise BadInput(f"{folder / MODEL} lies in no folder of a silo's run: give my-silo/{RUNS}/DIGEST")
    approved = SiloFolder(folder.parent.parent).approved()
    if not approved.digest.startswith(folder.name) or not folder.name:
        raise BadInput(
            f"{folder / MODEL} is of another federation's file than the one that this silo approved last "
            f"({approved.digest[:16]}…): give the folder of that run"
        )
    terms, held = terms_in(approved), approved.federation.data
    algorithm = terms.prepared.algorithm
    name = terms.experiment.algorithm
    tables = _agreed(held.schema_of_data, {str(folder / MODEL): approved.federation.tables, **_read(schema)})
    kept = Released(
        algorithm.settings.model_dump(mode="json"),
        held.schema_of_data,
        saved_weights(folder / MODEL),
        name,
    )
    return _ready(kept, name, tables, held.class_names)


def _read(path: Path | None, needed: bool = True) -> dict[str, TableSchema | None]:
    if path is None or (not needed and files.size_of(path) is None):
        return {}
    return {str(path): read_schema(path)}


def _agreed(schema: Schema, said: Mapping[str, TableSchema | None]) -> TableSchema | None:
    """The one schema of tables that all of them are, and that makes what the model reads."""
    given = {where: one for where, one in said.items() if one is not None}
    if not given:
        return None
    (first, tables), *others = given.items()
    for where, other in others:
        if other.digest != tables.digest:
            raise BadInput(
                f"{where} is another schema than that of {first} (digests {other.digest[:16]}… and "
                f"{tables.digest[:16]}…): give the one that the model learned by"
            )
    if len(tables.feature_names) != schema.features or tables.task != schema.task:
        raise BadInput(
            f"{first}: the schema makes {len(tables.feature_names)} features for task {tables.task.value!r}, "
            f"and the model reads {schema.features} for {str(schema.task)!r}: give the schema that it "
            "learned by"
        )
    return tables


def _ready(
    kept: Released,
    name: str,
    tables: TableSchema | None,
    names: tuple[str, ...] = (),
    threshold: float | None = None,
) -> Found:
    classes = tables.class_names if tables is not None else names
    if kept.schema.task == Task.NUMBER:
        classes = ()
    elif len(classes) != kept.schema.classes:
        classes = tuple(str(number) for number in range(kept.schema.classes))
    return Found(fitting(name, kept), kept.state, kept.schema, tables, classes, threshold)
