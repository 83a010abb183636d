"""An owner's data from its own files: tables of nodes and links, PyG's ``.pt``, or a function."""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.silos.agreement import check_names
from secure_fedgraph.graph.silos.given import OwnData

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

TABLES = (".csv", ".parquet")
NODES, EDGES = "nodes", "edges"
"""The names of the two tables in a folder."""
LABEL, SPLIT, WEIGHT = "label", "split", "weight"
"""Columns with a meaning of their own, beside the rows' names and links' ends."""
ENDS = ("source", "target")
SPLITS = {"train": 0, "val": 1, "validation": 1, "valid": 1, "test": 2}
MOST = 2**33
"""Bytes of a file that is read."""
_PYG = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
"""Classes of PyG that a saved ``Data`` is made of; of their fields only tensors and words are taken over."""
_VALUES = (torch.Tensor, str, int, float, bool, type(None))
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_function(place: str) -> bool:
    """Whether it names a function, ``module:function``, which runs code when it is read.

    >>> is_function("mybank.graphs:load"), is_function("bank.csv")
    (True, False)
    """
    return bool(_FUNCTION.fullmatch(place)) and not Path(place).exists()


def read_silo(name: str, place: str, rows: str | None = None) -> OwnData:
    """One owner's data.

    Args:
        name: the owner's, for messages.
        place: one of

            - ``FOLDER`` with ``nodes.csv`` (or ``.parquet``) and, where there are links, ``edges.csv``;
            - ``NODES.csv`` or ``NODES.csv,EDGES.csv``, and the same of parquet;
            - ``FILE.pt`` with a PyG ``Data``, a list of them, or a dict of tensors, from ``torch.save``;
            - ``module:function``, which takes no argument and returns the same.
        rows: the column of ``nodes`` that names the rows; ``id`` by default.

    Returns:
        A graph, or a list of graphs. Of tables, ``x`` has the columns in their order, ``feature_names`` their
        names, and ``class_names`` the classes where labels are words. Every link is in both directions.

    Raises:
        BadInput: naming owner, file, column and row.
    """
    if is_function(place):
        return _called(name, place)
    paths = [Path(part) for part in place.split(",")] if place else []
    if len(paths) == 1 and paths[0].is_dir():
        paths = [found for kind in (NODES, EDGES) if (found := _in_folder(name, paths[0], kind)) is not None]
    if not 1 <= len(paths) <= 2:
        raise BadInput(
            f"--silo {name}={place}: give a folder, a file, two tables (nodes,edges) or module:function"
        )
    for path in paths:
        if not path.is_file():
            raise BadInput(f"--silo {name}: {str(path)!r} is no file")
        if path.stat().st_size > MOST:
            raise BadInput(f"--silo {name}: {str(path)!r} has more than {MOST >> 30} GiB")
    if paths[0].suffix == ".pt" and len(paths) == 1:
        return _saved(name, paths[0])
    for path in paths:
        if path.suffix not in TABLES:
            raise BadInput(f"--silo {name}: {path.name!r} is no {', '.join(TABLES)} or .pt file")
    key = rows or "id"
    nodes = _table(name, paths[0])
    data = _of_nodes(name, paths[0], nodes, key, named=rows is not None)
    if len(paths) == 2:
        names = nodes[key] if key in nodes else np.arange(len(nodes))
        _add_links(name, paths[1], data, np.asarray(names))
    else:
        data.edge_index = torch.zeros(2, 0, dtype=torch.long)
    return data


def _in_folder(name: str, folder: Path, kind: str) -> Path | None:
    found = [path for suffix in TABLES if (path := folder / f"{kind}{suffix}").is_file()]
    if len(found) > 1:
        raise BadInput(f"--silo {name}: {folder} has {found[0].name} and {found[1].name}: keep one")
    if not found and kind == NODES:
        raise BadInput(f"--silo {name}: {folder} has no nodes.csv or nodes.parquet")
    return found[0] if found else None


def _called(name: str, place: str) -> OwnData:
    module, _, function = place.partition(":")
    if "" not in sys.path:  # as an own algorithm is found: beside the command's user
        sys.path.insert(0, "")
    try:
        made: Any = getattr(importlib.import_module(module), function)()
    except Exception as error:  # what somebody else's code raises
        raise BadInput(f"--silo {name}={place} fails: {type(error).__name__}: {error}") from error
    return _own_data(name, place, made)


def _saved(name: str, path: Path) -> OwnData:
    try:
        with torch.serialization.safe_globals(_PYG):
            made = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise anything
        why = (str(error).splitlines() or [""])[0][:160]
        raise BadInput(
            f"--silo {name}: {path.name!r} is no file of tensors alone ({type(error).__name__}: {why}); save "
            "it with torch.save(data.to_dict(), ...)"
        ) from None
    return _own_data(name, path.name, made)


def _own_data(name: str, place: str, made: object) -> OwnData:
    try:
        if isinstance(made, dict | Data):
            return _plain(made)
        if isinstance(made, list | tuple) and made and all(isinstance(one, dict | Data) for one in made):
            return [_plain(one) for one in made]
    except Exception as error:
        raise BadInput(f"--silo {name}: {place!r} is no graph: {type(error).__name__}: {error}") from None
    raise BadInput(
        f"--silo {name}: {place!r} holds a {type(made).__name__}; give a PyG Data or a list of them"
    )


def _plain(made: Data | dict[str, object]) -> Data:
    """A fresh graph of the same fields, as far as these are tensors, numbers or lists of words and numbers.

    Raises:
        TypeError: for a field of another type, a tensor's subclass for instance.
    """
    fields = dict(made) if isinstance(made, dict) else dict(made._store._mapping)
    for key, value in fields.items():
        listed = value if isinstance(value, list | tuple) else [value]
        if not isinstance(key, str) or not all(type(one) in _VALUES for one in listed):
            raise TypeError(f"field {str(key)[:40]!r} is of type {type(value).__name__}")
    return Data.from_dict(fields)


def _pandas() -> ModuleType:
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise BadInput(
            "pandas, which reads tables, is not installed: pip install 'secure-fedgraph[data]'"
        ) from None


def _table(name: str, path: Path) -> pd.DataFrame:
    read: Callable[..., pd.DataFrame] = (
        _pandas().read_csv if path.suffix == ".csv" else _pandas().read_parquet
    )
    with _readable(name, path):
        table = read(path, engine="pyarrow") if path.suffix != ".csv" else read(path)
    if not len(table):
        raise BadInput(f"--silo {name}: {path.name} has no rows")
    twice = table.columns[table.columns.duplicated()]
    if len(twice):
        raise BadInput(f"--silo {name}: {path.name} has column {str(twice[0])!r} twice; rename one")
    table.columns = [str(column) for column in table.columns]
    return table


@contextmanager
def _readable(name: str, path: Path) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # parsers raise what they like
        why = (str(error).splitlines() or [""])[0][:160]
        raise BadInput(f"--silo {name}: {path.name} cannot be read: {type(error).__name__}: {why}") from None


def _of_nodes(name: str, path: Path, table: pd.DataFrame, key: str, named: bool) -> Data:
    if key not in table and named:
        raise BadInput(f"--silo {name}: {path.name} has no column {key!r}, which --rows names")
    taken = {key, LABEL, SPLIT}
    columns = [column for column in table.columns if column not in taken]
    if not columns:
        raise BadInput(
            f"--silo {name}: {path.name} has no column of features beside {', '.join(sorted(taken))}"
        )
    data = Data(x=torch.from_numpy(_numbers(name, path, table, columns)))
    data.feature_names = columns
    if key in table:
        if table[key].isna().any():
            raise BadInput(f"--silo {name}: {path.name} has a row without {key}")
        if table[key].duplicated().any():
            twice = table[key][table[key].duplicated()].iloc[0]
            raise BadInput(f"--silo {name}: {path.name} has {key} {str(twice)[:60]!r} more than once")
        if named:
            data[key] = [str(one) for one in table[key].tolist()]
    if LABEL in table:
        data.y, classes = _labels(name, path, table[LABEL])
        if classes:
            data.class_names = classes
    if SPLIT in table:
        words = (
            table[SPLIT].astype(object).where(table[SPLIT].notna(), "").astype(str).str.strip().str.lower()
        )
        unknown = sorted(set(words) - {"", *SPLITS})
        if unknown:
            raise BadInput(
                f"--silo {name}: {path.name} has split {unknown[0][:40]!r}; give train, val, test or nothing"
            )
        part = words.map({**SPLITS, "": -1}).to_numpy(dtype=np.int64)
        for number, mask in enumerate(MASKS):
            data[mask] = torch.from_numpy(np.array(part == number))
    return data


def _numbers(name: str, path: Path, table: pd.DataFrame, columns: list[str]) -> np.ndarray:
    for column in columns:
        kind = table[column].dtype
        if not isinstance(kind, np.dtype) or kind.kind not in "iufb":
            word = _first_word(table[column])
            raise BadInput(
                f"--silo {name}: {path.name}, column {column!r} holds {word}: give numbers, or leave the "
                "column out"
            )
        if table[column].isna().any():
            row = int(np.flatnonzero(table[column].isna().to_numpy())[0])
            raise BadInput(
                f"--silo {name}: {path.name}, column {column!r} is empty in row {row + 1}; fill it in"
            )
    return np.array(table[columns].to_numpy(dtype=np.float32), order="C")


def _first_word(column: pd.Series[Any]) -> str:
    for value in column:
        try:
            float(value)
        except (TypeError, ValueError):
            return repr(value)[:40]
    return "something else than numbers"


def _labels(name: str, path: Path, column: pd.Series[Any]) -> tuple[torch.Tensor, list[str]]:
    """Labels and, where they are words, the classes' names; an empty one is -1."""
    absent = column.isna().to_numpy()
    given = column[~absent]
    if not len(given):
        return torch.full((len(column),), -1), []
    values = np.full(len(column), -1, dtype=np.int64)
    if isinstance(given.dtype, np.dtype) and np.issubdtype(given.dtype, np.number):
        numbers = given.to_numpy(dtype=np.float64)
        if not np.array_equal(numbers, np.round(numbers)) or abs(numbers).max() > 2**31:
            raise BadInput(f"--silo {name}: {path.name}, label is no whole number: classes are, or words")
        values[~absent] = numbers.astype(np.int64)
        return torch.from_numpy(values), []
    words = given.astype(str).str.strip()
    classes = sorted(set(words) - {""})
    place = {word: number for number, word in enumerate(classes)} | {"": -1}
    values[~absent] = words.map(place).to_numpy(dtype=np.int64)
    return torch.from_numpy(values), classes


def _add_links(name: str, path: Path, data: Data, names: np.ndarray) -> None:
    pandas, table = _pandas(), _table(name, path)
    for column in ENDS:
        if column not in table:
            raise BadInput(
                f"--silo {name}: {path.name} has no column {column!r}: name the links' ends source and target"
            )
    place = pandas.Index(names)
    ends = []
    for column in ENDS:
        found = place.get_indexer(table[column])
        if (found < 0).any():
            row = int(np.flatnonzero(found < 0)[0])
            end = str(table[column].iloc[row])[:60]
            raise BadInput(
                f"--silo {name}: {path.name}, row {row + 1}: {column} {end!r} is no node: leave out "
                "links to other owners' nodes"
            )
        ends.append(found)
    values = [column for column in table.columns if column not in ENDS]
    carried = torch.from_numpy(_numbers(name, path, table, values)) if values else torch.zeros(len(table), 0)
    low, high = np.minimum(*ends), np.maximum(*ends)
    _, first, which = np.unique(low * len(names) + high, return_index=True, return_inverse=True)
    other = (carried != carried[torch.from_numpy(first[which])]).any(dim=1).nonzero()
    if len(other):
        row = int(other[0])
        raise BadInput(
            f"--silo {name}: {path.name}, row {row + 1}: this link stands twice, with other values; keep one"
        )
    first.sort()
    loops = low[first] == high[first]
    back = first[~loops]
    data.edge_index = torch.from_numpy(
        np.concatenate([np.stack([low[first], high[first]]), np.stack([high[back], low[back]])], axis=1)
    ).long()
    both = torch.cat([carried[torch.from_numpy(first)], carried[torch.from_numpy(back)]])
    if WEIGHT in values:
        data.edge_weight = both[:, values.index(WEIGHT)].clone()
    rest = [number for number, column in enumerate(values) if column != WEIGHT]
    if rest:
        data.edge_attr = both[:, rest].clone()


def read_silos(places: Mapping[str, str], rows: str | None = None) -> dict[str, OwnData]:
    """Every owner's data, by name; files that did not change since are read once.

    Raises:
        BadInput: as :func:`read_silo`, and for a name that no owner can have.
    """
    check_names(places)
    return dict(_read(tuple(sorted(places.items())), rows, tuple(map(state_of, sorted(places.values())))))


@lru_cache(maxsize=1)
def _read(places: tuple[tuple[str, str], ...], rows: str | None, _: tuple[str, ...]) -> dict[str, OwnData]:
    return {name: read_silo(name, place, rows) for name, place in places}


def state_of(place: str) -> str:
    """What changes when the files behind a place do; nothing for a function."""
    paths = [] if is_function(place) else [Path(part) for part in place.split(",")]
    inside = [one for path in paths if path.is_dir() for one in sorted(path.iterdir())]
    states = [(str(one), one.stat()) for one in (*paths, *inside) if one.exists()]
    return " ".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)


def digest_of_places(places: Mapping[str, str]) -> str:
    """SHA-256 (hex) of the files behind all places: results of other data are not taken for theirs."""
    digest = hashlib.sha256()
    for name, place in sorted(places.items()):
        digest.update(f"{name}={place} ".encode())
        paths = [] if is_function(place) else [Path(part) for part in place.split(",")]
        for path in paths:
            for one in sorted(path.iterdir()) if path.is_dir() else [path]:
                if one.is_file():
                    with one.open("rb") as file:
                        digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
