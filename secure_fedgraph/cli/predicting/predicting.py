"""The work of ``predict``: reads a model and a table, writes a row of scores a node."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.plugins import check_own_name
from secure_fedgraph.cli.exporting.exporting import check_free, fitting, of_run, write_out
from secure_fedgraph.cli.screen import visible, warn
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.deployment.silo_folder import MODEL, RUNS, SiloFolder
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.experiment import released
from secure_fedgraph.experiment.released import Released
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.graph.silos.given import OwnData
from secure_fedgraph.graph.silos.reading import data_at, saved_weights
from secure_fedgraph.graph.tables.owned import OwnTables, graph_of, read_tables
from secure_fedgraph.graph.tables.schema import NAME as SCHEMA
from secure_fedgraph.graph.tables.schema import TableSchema, read_schema
from secure_fedgraph.graph.tables.splitting import SPLIT
from secure_fedgraph.graph.tables.suffixes import SUFFIXES
from secure_fedgraph.graph.tables.table import Table
from secure_fedgraph.running.predicting import predicted
from secure_fedgraph.storage import manifest

# A released model wherever it lies: in a run's folder, in a file alone, or with a silo.


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


BEST = "best"
"""As a threshold: the one that the run chose on validation nodes."""


def predict(
    model: Path,
    nodes: str,
    edges: str | None,
    out: Path,
    schema: Path | None,
    threshold: str | None,
    algorithm: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Scores a table by a released model, and writes a row a node, for its user alone.

    Raises:
        BadInput: where there is no model, the table does not fit its schema, or something stands in the way.
    """
    check_free(out, overwrite)
    of = found(model, algorithm, schema)
    least = _least(threshold, of)
    data, ids, notes = _data(of, nodes, edges)
    try:
        scores, said = predicted(of.algorithm, dict(of.state), data, of.schema)
    except SecureFedGraphError:
        raise
    except Exception as error:  # a model of somebody else's, or one that others changed
        why = (str(error).splitlines() or [""])[0][:160]
        raise BadInput(
            f"{model}: the model does not run on {nodes}: {type(error).__name__}: {why}"
        ) from error
    notes += said
    if getattr(of.algorithm.settings, "second_moments", "") == "own":
        notes.append(
            f"{of.algorithm.name} released sums by class alone, and reads how features go together from the "
            f"{len(scores):,} rows that it scores: give many rows at a time, a hundred for each of the "
            f"{of.schema.features} features or more; a row's scores depend on the others"
        )
    named = _named(scores, of, least)
    content = _rows(ids or [str(number) for number in range(len(scores))], named, scores, of)
    write_out(out, content, private=True)
    for note in notes:
        warn(note)
    if as_json:
        told = {
            "schema": "secure-fedgraph/predict/1",
            "file": str(out),
            "algorithm": of.algorithm.name,
            "task": str(of.schema.task),
            "rows": len(scores),
            "links": data.edge_index.shape[1] if isinstance(data, Data) else None,
            "classes": list(of.classes),
            "predicted": dict(Counter(named)) if of.schema.task == Task.CLASSES else None,
            "threshold": least,
            "tables": None if of.tables is None else of.tables.digest,
            "notes": list(notes),
        }
        click.echo(json.dumps(told))
    else:
        click.echo(visible(f"{len(scores):,} rows: {out}"))


def _least(given: str | None, of: Found) -> float | None:
    """From which probability on the positive class, or a label, is named."""
    if given is None:
        return None
    two = of.schema.task == Task.CLASSES and len(of.classes) == 2
    least = of.threshold if given == BEST else None
    with suppress(ValueError):
        least = float(given)
    fits = two or (of.schema.task == Task.LABELS and given != BEST)
    if not fits or least is None or not 0 <= least <= 1:
        raise BadInput(
            f"--threshold {given[:40]}: give a number from 0 to 1 for two classes or for labels, or {BEST!r} "
            "for two classes of a run whose result.json has metrics.threshold"
        )
    return least


# --- what is read -------------------------------------------------------------------------------------------


def _data(of: Found, nodes: str, edges: str | None) -> tuple[OwnData, list[str], list[str]]:
    """What the model reads, ids of its rows where they have some, and notes."""
    if nodes.lower().endswith(SUFFIXES):
        own: OwnData | OwnTables = read_tables("", [Path(nodes), *([Path(edges)] if edges else [])])
    else:
        if edges:
            raise BadInput(f"{edges[:200]}: links beside {nodes[:200]}, which has its own: leave one out")
        own = data_at(nodes)
    if not isinstance(own, OwnTables):
        return own, [], []
    if of.tables is None:
        raise BadInput(
            f"{nodes[:200]} is a table, and this model learned from none: give --schema with the schema.toml "
            "of its run, or a .pt file as it learned from"
        )
    return _of_tables(own, of.tables)


def _of_tables(own: OwnTables, schema: TableSchema) -> tuple[Data, list[str], list[str]]:
    """Next week's table, which has no answers, as this week's was read."""
    label = schema.label.columns if schema.label is not None else ()
    table, left = _without(own.nodes, (*label, SPLIT), {one.name for one in schema.columns})
    notes = [f"{table.where}: answers and splits are not read ({', '.join(map(repr, left))})"] if left else []
    read_by = schema.model_copy(update={"label": None})
    if schema.id and table.find(schema.id) is None and own.links is None:
        notes.append(f"{table.where} has no column {schema.id!r}: ids are the rows' places, from 0")
        read_by = read_by.model_copy(update={"id": ""})
    if schema.links is not None and own.links is None:
        notes.append("no table of links was given: each node is scored by itself")
    graph = graph_of(replace(own, nodes=table), read_by)
    empty = [f"{one.empty:,} of {one.column}" for one in graph.fits if one.empty]
    if empty:
        notes.append(f"{table.where}: empty cells are read as the schema says: {', '.join(empty)}")
    fields = ("x", "edge_index", "edge_weight", "edge_attr")
    data = Data(**{key: graph.data[key] for key in fields if graph.data.get(key) is not None})
    return data, list(graph.ids), [*notes, *(f"{table.where}: {one}" for one in graph.notes)]


def _without(table: Table, names: Sequence[str], features: set[str]) -> tuple[Table, list[str]]:
    """The table without answers, and what was left out."""
    every = (table.find(name) for name in names if name not in features and name not in table.unread)
    left = [name for name in every if name is not None and name not in features]
    columns = {name: one for name, one in table.columns.items() if name not in left}
    unread = {name: one for name, one in table.unread.items() if name not in names}
    return replace(table, columns=columns, unread=unread), left


# --- what is written ----------------------------------------------------------------------------------------


def _named(scores: Tensor, of: Found, least: float | None) -> list[str]:
    """What is predicted of each row, in words."""
    if of.schema.task == Task.NUMBER:
        return _written(scores)
    if of.schema.task == Task.LABELS:
        yes = (scores >= (0.5 if least is None else least)).tolist()
        return [";".join("yes" if one else "no" for one in row) for row in yes]
    chosen = scores.argmax(dim=1)
    if least is not None:
        chosen = torch.where(scores[:, of.positive] >= least, of.positive, 1 - of.positive)
    return [of.classes[one] for one in chosen.tolist()]


def _written(values: Tensor) -> list[str]:
    """Numbers with as many digits as a float has."""
    words: list[str] = values.float().numpy().astype(str).tolist()
    return words


def _rows(ids: Sequence[str], named: Sequence[str], scores: Tensor, of: Found) -> bytes:
    many = [] if of.schema.task == Task.NUMBER else [_written(column) for column in scores.T]
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["id", "prediction", *(visible(f"score_{name}") for name in of.classes)])
    rows.writerows(zip(map(visible, ids), map(visible, named), *many, strict=True))
    return text.getvalue().encode()
