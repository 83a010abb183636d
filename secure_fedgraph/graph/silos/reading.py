"""An owner's data from its own files: tables of nodes and links, PyG's ``.pt``, or a function."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.conversions import is_scipy_sparse
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.mapped import map_features
from secure_fedgraph.graph.own.arrays import arrays_in
from secure_fedgraph.graph.own.objects import brought
from secure_fedgraph.graph.silos.agreement import check_names
from secure_fedgraph.graph.silos.folders import EDGES, FEATURES, GRAPH, NODES, files_in
from secure_fedgraph.graph.silos.given import OwnData
from secure_fedgraph.graph.silos.places import FUNCTION
from secure_fedgraph.graph.tables.drafting import agreed_schema
from secure_fedgraph.graph.tables.encoding import Fit
from secure_fedgraph.graph.tables.owned import OwnGraph, OwnTables, graph_of, read_tables
from secure_fedgraph.graph.tables.reading import MOST
from secure_fedgraph.graph.tables.schema import TableSchema
from secure_fedgraph.graph.tables.sharing import shared_ids
from secure_fedgraph.graph.tables.suffixes import SUFFIXES

_PYG = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
"""Classes of PyG that a saved ``Data`` is made of; of their fields only tensors and words are taken over."""
SILO, DATA = "--silo {}: ", "--data: "
"""What messages call an owner's data, and a user's own that are handed out."""
_VALUES = (torch.Tensor, np.ndarray, str, int, float, bool, type(None))


def is_function(place: str) -> bool:
    """Whether it names a function, ``module:function``, which runs code when it is read.

    >>> is_function("mybank.graphs:load"), is_function("bank.csv")
    (True, False)
    """
    return bool(FUNCTION.fullmatch(place)) and not os.path.exists(place)


@dataclass(frozen=True)
class ReadSilos:
    """Owners' data as they were read, and what there is to say about it.

    Args:
        data: by owner.
        ids: of the rows of owners with tables, where these name them.
        notes: a line an owner on what was repaired or left out, and one on a schema that was made.
        schema: of the tables: the given one, or what the owners declare; None where no owner has tables.
        fits: by owner with tables, a line a column.
    """

    data: Mapping[str, OwnData] = field(repr=False)
    ids: Mapping[str, tuple[str, ...]] = field(repr=False)
    notes: tuple[str, ...]
    schema: TableSchema | None = field(repr=False)
    fits: Mapping[str, tuple[Fit, ...]] = field(repr=False)

    def say(self, *more: str) -> None:
        """Warns of what there is to say, in one warning."""
        if said := [note for note in (*self.notes, *more) if note]:
            warnings.warn("; ".join(said), DataWarning, stacklevel=3)


def read_places(
    places: Mapping[str, str],
    rows: str | None = None,
    schema: TableSchema | None = None,
    alone: bool = False,
    option: str = SILO,
) -> ReadSilos:
    """Owners' data, with what there is to say about it; files that did not change since are read once.

    Args:
        places: each owner's data, by its name: one of

            - ``FOLDER`` with a table ``nodes`` and, where there are links, ``edges``, each ``.csv``,
              ``.tsv`` (or these with ``.gz``), ``.parquet``, ``.feather`` or ``.arrow``; or with
              ``graph.pt``, which is a ``FILE.pt``. With ``features.npy`` in it, ``x`` is mapped from that
              file, row after row as the nodes, and the others have no features;
            - ``NODES.csv`` or ``NODES.csv,EDGES.csv``, and the same of other tables;
            - ``FILE.pt`` with a PyG ``Data``, a list of them, or a dict of tensors, from ``torch.save``;
            - ``FILE.npz``, as :func:`~secure_fedgraph.graph.own.arrays.arrays_in` takes it;
            - ``module:function``, which takes no argument and returns the same, or what
              :func:`~secure_fedgraph.graph.own.objects.brought` makes one of.
        rows: for owners of columns, the column that names the rows; the schema's, or ``id``, by default.
        schema: what the columns of tables mean. Without one it is made of what all owners declare of the same
            columns: names, kinds and lists of words, with ``label`` as the column of labels.
        alone: whether others may have classes that these owners lack.
        option: what messages call an owner's place.

    Returns:
        A graph, or a list of graphs, of each owner. Tables become what
        :func:`~secure_fedgraph.graph.tables.owned.graph_of` says.

    Raises:
        BadInput: naming owner, file, column and row, and for a name that no owner can have.
    """
    check_names(places)
    states = tuple(" ".join(map(str, map(_state, _behind(place)))) for place in sorted(places.values()))
    return _read(tuple(sorted(places.items())), rows, schema, alone, option, states)


@lru_cache(maxsize=2)
def _read(
    places: tuple[tuple[str, str], ...],
    rows: str | None,
    schema: TableSchema | None,
    alone: bool,
    option: str,
    _: tuple[str, ...],
) -> ReadSilos:
    opened = {name: data_at(place, option.format(name)) for name, place in places}
    tables = {name: one for name, one in opened.items() if isinstance(one, OwnTables)}
    made: dict[str, OwnGraph] = {}
    notes: list[str] = []
    declared = schema is None and rows is None
    if tables and declared:
        schema, line = agreed_schema(tables, alone=alone)
        notes.append(line)
    for name, one in tables.items():
        of_owner = schema
        if of_owner is None:  # owners of columns have others each
            of_owner, line = agreed_schema({name: one}, rows, alone=True)
            notes += [line] if line not in notes else []
        elif declared and of_owner.id and one.nodes.find(of_owner.id) is None:
            # some owners name their rows, this one does not
            of_owner = of_owner.model_copy(update={"id": ""})
        made[name] = graph_of(one, of_owner, rows)
    notes += [f"{name}: {'; '.join(one.notes)}" for name, one in made.items() if one.notes]
    return ReadSilos(
        {name: made[name].data if isinstance(one, OwnTables) else one for name, one in opened.items()},
        {name: one.ids for name, one in made.items()},
        tuple(notes),
        schema if tables else None,
        {name: one.fits for name, one in made.items()},
    )


def read_silo(
    name: str, place: str, rows: str | None = None, schema: TableSchema | None = None, option: str = SILO
) -> OwnData:
    """One owner's data, as :func:`read_places` reads it.

    Warns:
        DataWarning: counts and names what was repaired or left out.
    """
    read = read_places({name: place}, rows, schema, alone=True, option=option)
    read.say()
    return read.data[name]


def read_silos(
    places: Mapping[str, str], rows: str | None = None, schema: TableSchema | None = None, holders: int = 1
) -> dict[str, OwnData]:
    """Every owner's data, by name, as :func:`read_places` reads it.

    Warns:
        DataWarning: says that a schema was made; counts and names, owner by owner, what was repaired or left
            out; names ids that more than ``holders`` owners have.
    """
    read = read_places(places, rows, schema)
    read.say(shared_ids(read.ids, holders) if rows is None else "")
    return dict(read.data)


def read_one(place: str, schema: TableSchema | None = None) -> OwnData:
    """Data that are handed out to owners, from a user's own files, as :func:`read_places` reads them.

    Warns:
        DataWarning: counts and names what was repaired or left out.
    """
    read = read_places({"data": place}, None, schema, option=DATA)
    read.say()
    return read.data["data"]


def data_at(place: str, who: str = "") -> OwnData | OwnTables:
    """An owner's graphs, or its tables as they are, from a place as :func:`read_places` takes it.

    Args:
        place: where.
        who: whose, before messages, such as ``--silo bank-a: ``.

    Raises:
        BadInput: naming owner and file.
    """
    if is_function(place):
        return _called(who, place)
    paths = [Path(part) for part in place.split(",")] if place else []
    features = None
    if len(paths) == 1 and os.path.isdir(paths[0]):
        paths, features = files_in(who, paths[0])
    if not 1 <= len(paths) <= 2:
        raise BadInput(
            f"{who}{place[:200]!r}: give a folder, a file, two tables (nodes,edges) or module:function"
        )
    for path in paths:
        if not os.path.isfile(path):  # False for a name that is too long, where Path.is_file raises
            raise BadInput(f"{who}{str(path)[:200]!r} is no file")
        if path.stat().st_size > MOST:
            raise BadInput(f"{who}{str(path)!r} has more than {MOST >> 30} GiB")
    if paths[0].suffix == ".pt" and len(paths) == 1:
        saved = _own_data(who, paths[0].name, _loaded(f"{who}{paths[0].name!r}", paths[0]))
        return saved if features is None else _with_features(who, paths[0], saved, features)
    if paths[0].suffix == ".npz" and len(paths) == 1:
        return _own_data(who, paths[0].name, arrays_in(paths[0], who))
    for path in paths:
        if not path.name.lower().endswith(SUFFIXES):
            raise BadInput(f"{who}{path.name!r} is no {', '.join(SUFFIXES)}, .pt or .npz file")
    return read_tables(who, paths, None if features is None else map_features(features, who))


def _with_features(who: str, path: Path, saved: OwnData, features: Path) -> Data:
    """A saved graph with the features of its folder."""
    if not isinstance(saved, Data):
        raise BadInput(
            f"{who}{path.name} has a list of graphs, and {FEATURES} is for one graph: leave it out"
        )
    if saved.get("x") is not None:
        raise BadInput(f"{who}{path.name} has x, and {FEATURES} lies beside it: keep one of the two")
    saved.x = map_features(features, who)
    y = saved.get("y")
    if isinstance(y, torch.Tensor) and y.dim() and len(y) != len(saved.x):  # before a large file is read
        raise BadInput(
            f"{who}{FEATURES} has {len(saved.x)} rows, and y of {path.name} has {len(y)}: give one row a "
            "node, in the same order"
        )
    return saved


def _called(who: str, place: str) -> OwnData:
    module, _, function = place.partition(":")
    if "" not in sys.path:  # as an own algorithm is found: beside the command's user
        sys.path.insert(0, "")
    try:
        # standard output and the working folder are the command's own: --json prints one object, and --out
        # may be relative
        with redirect_stdout(sys.stderr), chdir("."):
            made: Any = getattr(importlib.import_module(module), function)()
    except (Exception, SystemExit) as error:  # what somebody else's code raises
        why = (str(error).splitlines() or [""])[0][:160]
        raise BadInput(f"{who}{place} fails: {type(error).__name__}: {why}") from error
    brought_in, notes = brought(made, f"{who}{place}")
    if notes:
        warnings.warn(f"{who}{'; '.join(notes)}", DataWarning, stacklevel=2)
    return _own_data(who, place, made if brought_in is None else brought_in)


def _loaded(where: str, path: Path) -> object:
    """What ``torch.save`` wrote, of tensors and PyG's classes alone: nothing in the file runs."""
    try:
        # places of sparse matrices are checked: torch writes where they say
        with torch.serialization.safe_globals(_PYG), torch.sparse.check_sparse_tensor_invariants():
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise anything; torch's advice is to run the pickle
        advice = type(error).__name__ == "UnpicklingError"
        why = "" if advice else (str(error).splitlines() or [""])[0][:160]
        raise BadInput(
            f"{where} is no file of tensors alone ({type(error).__name__}"
            f"{why and ': '}{why}); save it with torch.save(data.to_dict(), ...)"
        ) from None


def saved_weights(path: Path) -> dict[str, torch.Tensor]:
    """Weights by name, as a silo keeps them.

    Raises:
        BadInput: for anything else.
    """
    if not os.path.isfile(path) or path.stat().st_size > MOST:
        raise BadInput(f"{path} is no file of a model: put a copy back")
    made = _loaded(str(path), path)
    if not isinstance(made, dict) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in made.items()
    ):
        raise BadInput(f"{path} holds no weights by name: put a copy back")
    return made


def _own_data(who: str, place: str, made: object) -> OwnData:
    try:
        if isinstance(made, dict | Data):
            return _plain(made)
        if isinstance(made, list | tuple) and made and all(isinstance(one, dict | Data) for one in made):
            return [_plain(one) for one in made]
    except Exception as error:
        raise BadInput(f"{who}{place!r} is no graph: {type(error).__name__}: {error}") from None
    raise BadInput(f"{who}{place!r} holds a {type(made).__name__}; give a PyG Data or a list of them")


def _plain(made: Data | dict[str, object]) -> Data:
    """A fresh graph of the same fields, as far as these are tensors, numbers or lists of words and numbers.

    Raises:
        TypeError: for a field of another type, a tensor's subclass for instance, and for a tensor without
            numbers of its own.
        ValueError: for a name that PyG keeps for itself, and for tensors that are larger than a file may be:
            one number in a file can be expanded to any shape.
    """
    fields = dict(made) if isinstance(made, dict) else dict(made._store._mapping)
    if fields.get("x") is not None:
        fields.pop("num_nodes", None)  # x says how many there are; a number of its own may be any
    size = 0
    for key, value in fields.items():
        listed = value if isinstance(value, list | tuple) else [value]
        if not isinstance(key, str) or not all(
            type(one) in _VALUES or is_scipy_sparse(one) for one in listed
        ):
            raise TypeError(f"field {str(key)[:40]!r} is of type {type(value).__name__}")
        if key.startswith("_"):
            raise ValueError(f"field {key[:40]!r} has a name that PyG keeps for itself: leave it out")
        for one in listed:
            if isinstance(one, torch.Tensor):
                if one.is_nested or one.is_meta:
                    raise TypeError(f"field {key[:40]!r} is a tensor without a shape or without numbers")
                parts = _parts_of(one)
                if not parts or any(part.nbytes > part.untyped_storage().nbytes() for part in parts):
                    raise ValueError(
                        f"field {key[:40]!r} holds more numbers than its file: save it after .contiguous()"
                    )
                size += sum(part.nbytes for part in parts)
    if size > MOST:
        raise ValueError(f"its tensors take more than {MOST >> 30} GiB")
    return Data.from_dict(fields)


def _parts_of(value: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors in which a tensor's numbers lie: itself, or a sparse one's; none of other layouts."""
    if value.layout is torch.strided:
        return (value,)
    if value.layout is torch.sparse_coo:
        return value._indices(), value._values()
    if value.layout is torch.sparse_csr:
        return value.crow_indices(), value.col_indices(), value.values()
    return ()


def _behind(place: str) -> list[Path]:
    """The files that a place names or, of a folder, those that are read; none for a function."""
    tables = [*(f"{kind}{suffix}" for kind in (NODES, EDGES) for suffix in SUFFIXES), GRAPH, FEATURES]
    paths = [] if is_function(place) else [Path(part) for part in place.split(",")]
    files = [
        one
        for path in paths
        for one in ([path / table for table in tables] if os.path.isdir(path) else [path])
    ]
    return [one for one in files if os.path.isfile(one)]


def _state(path: Path) -> tuple[str, int, int]:
    """What changes when a file does."""
    state = path.stat()
    return str(path), state.st_size, state.st_mtime_ns


def digest_of_places(places: Mapping[str, str]) -> str:
    """SHA-256 (hex) of the files behind all places: results of other data are not taken for theirs."""
    digest = hashlib.sha256()
    for name, place in sorted(places.items()):
        digest.update(f"{name}={place} ".encode())
        for path in _behind(place):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
