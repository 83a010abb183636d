"""A released model wherever it lies: in a run's folder, in a file alone, or with a silo."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.plugins import check_own_name
from secure_fedgraph.cli.exporting.exporting import fitting, of_run
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
from secure_fedgraph.storage import manifest


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
        BadInput: where there is no model, where it is damaged or of another run, and for a schema of tables
            that is another than the model's.
    """
    folder = place if place.is_dir() else place.parent
    names, threshold = tuple[str, ...](), None
    if (place / "result.json").is_file():
        manifest.unchecked(place)
        run, name, kept = of_run(place, algorithm)
        noted, names = run.metrics.get("threshold"), tuple(run.data.class_names)
        threshold = None if noted is None else noted.value
    elif (folder / MODEL).is_file() and (place.is_dir() or place.name == MODEL):
        name, kept, names = _of_silo(folder)
    elif place.is_dir():
        raise BadInput(
            f"{place} holds no finished run: give a folder with result.json and {released.NAME}, a model's "
            "file, or a silo's folder of one run"
        )
    else:
        kept = released.read_file(place)
        name = kept.algorithm
        if not name:
            raise BadInput(f"{place} does not say which algorithm it is of: give the folder of its run")
        check_own_name(name, algorithm, folder)
    tables = _tables(kept, schema or (folder / SCHEMA if kept.tables is None else None), place)
    classes = tables.class_names if tables is not None else names
    if kept.schema.task == Task.NUMBER:
        classes = ()
    elif len(classes) != kept.schema.classes:
        classes = tuple(str(number) for number in range(kept.schema.classes))
    return Found(fitting(name, kept), kept.state, kept.schema, tables, classes, threshold)


def _of_silo(folder: Path) -> tuple[str, Released, tuple[str, ...]]:
    """A silo's model: what it was built for stands in the federation's file that the silo approved."""
    if folder.parent.name != RUNS:
        raise BadInput(f"{folder / MODEL} lies in no folder of a silo's run: give my-silo/{RUNS}/DIGEST")
    approved = SiloFolder(folder.parent.parent).approved()
    if not approved.digest.startswith(folder.name) or not folder.name:
        raise BadInput(
            f"{folder / MODEL} is of another federation's file than the one that this silo approved last "
            f"({approved.digest[:16]}…): give the folder of that run"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the form and the budget, which its run said
        terms, held = terms_in(approved), approved.federation.data
    settings = terms.prepared.algorithm.settings.model_dump(mode="json")
    name, state = terms.prepared.algorithm.name, saved_weights(folder / MODEL)
    kept = Released(settings, held.schema_of_data, state, name, approved.federation.tables)
    return name, kept, held.class_names


def _tables(kept: Released, path: Path | None, place: Path) -> TableSchema | None:
    """The schema of tables that the model holds, or the one at a path, which makes what the model reads."""
    there = path is not None and (path.name != SCHEMA or files.size_of(path) is not None)
    named = read_schema(path) if path is not None and there else None
    tables = kept.tables or named
    if tables is None:
        return None
    if named is not None and named.digest != tables.digest:
        raise BadInput(
            f"{path} is another schema than that of {place}: give the one that the model learned by"
        )
    if len(tables.feature_names) != kept.schema.features or tables.task != kept.schema.task:
        raise BadInput(
            f"{place}: the schema makes {len(tables.feature_names)} features for task {tables.task.value!r}, "
            f"and the model reads {kept.schema.features} for {str(kept.schema.task)!r}: give the schema that "
            "it learned by"
        )
    return tables
