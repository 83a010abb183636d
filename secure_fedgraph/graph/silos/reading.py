"""An owner's data from its own files: tables of nodes and links, PyG's ``.pt``, or a function."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import chdir, contextmanager, redirect_stdout
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.mapped import map_features
from secure_fedgraph.graph.own.arrays import arrays_in
from secure_fedgraph.graph.own.objects import brought
from secure_fedgraph.graph.silos.agreement import check_names
from secure_fedgraph.graph.silos.folders import EDGES, FEATURES, GRAPH, NODES, TABLES, files_in
from secure_fedgraph.graph.silos.given import OwnData
from secure_fedgraph.graph.silos.places import FUNCTION

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

LABEL, SPLIT, WEIGHT = "label", "split", "weight"
"""Columns with a meaning of their own, beside the rows' names and links' ends."""
ENDS = ("source", "target")
SPLITS = {"train": 0, "val": 1, "validation": 1, "valid": 1, "test": 2}
MOST_COLUMNS, LONGEST_HEAD = 20_000, 2**22
"""Of a ``.csv`` file: parsers take a time for each column, and a first line may be the whole file."""
MOST = 2**33
"""Bytes of a file that is read."""
_PYG = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
"""Classes of PyG that a saved ``Data`` is made of; of their fields only tensors and words are taken over."""
_WHOLE = "data"
"""What the owner of a graph that is handed out is called, until the message is made."""
_VALUES = (torch.Tensor, np.ndarray, str, int, float, bool, type(None))
_ABSENT = ("n/a", "na", "nan", "none", "null", "<na>", "#n/a")
"""Words that some programs write for an empty cell, and that may be a class's name all the same."""


def is_function(place: str) -> bool:
    """Whether it names a function, ``module:function``, which runs code when it is read.

    >>> is_function("mybank.graphs:load"), is_function("bank.csv")
    (True, False)
    """
    return bool(FUNCTION.fullmatch(place)) and not os.path.exists(place)


def read_silo(name: str, place: str, rows: str | None = None) -> OwnData:
    """One owner's data.

    Args:
        name: the owner's, for messages.
        place: one of

            - ``FOLDER`` with ``nodes.csv`` (or ``.parquet``) and, where there are links, ``edges.csv``; or
              with ``graph.pt``, which is a ``FILE.pt``. With ``features.npy`` in it, ``x`` is mapped from
              that file, row after row as the nodes, and the others have no features;
            - ``NODES.csv`` or ``NODES.csv,EDGES.csv``, and the same of parquet;
            - ``FILE.pt`` with a PyG ``Data``, a list of them, or a dict of tensors, from ``torch.save``;
            - ``FILE.npz``, as :func:`~secure_fedgraph.graph.own.arrays.arrays_in` takes it;
            - ``module:function``, which takes no argument and returns the same, or what
              :func:`~secure_fedgraph.graph.own.objects.brought` makes one of.
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
    features = None
    if len(paths) == 1 and os.path.isdir(paths[0]):
        paths, features = files_in(name, paths[0])
    if not 1 <= len(paths) <= 2:
        raise BadInput(
            f"--silo {name}={place}: give a folder, a file, two tables (nodes,edges) or module:function"
        )
    for path in paths:
        if not os.path.isfile(path):  # False for a name that is too long, where Path.is_file raises
            raise BadInput(f"--silo {name}: {str(path)[:200]!r} is no file")
        if path.stat().st_size > MOST:
            raise BadInput(f"--silo {name}: {str(path)!r} has more than {MOST >> 30} GiB")
    if paths[0].suffix == ".pt" and len(paths) == 1:
        saved = _saved(name, paths[0])
        return saved if features is None else _with_features(name, paths[0], saved, features)
    if paths[0].suffix == ".npz" and len(paths) == 1:
        return _own_data(name, paths[0].name, arrays_in(paths[0], f"--silo {name}"))
    for path in paths:
        if path.suffix not in TABLES:
            raise BadInput(f"--silo {name}: {path.name!r} is no {', '.join(TABLES)}, .pt or .npz file")
    key = rows or "id"
    nodes = _table(name, paths[0], (key, LABEL, SPLIT), named=(key,))
    if key not in nodes and not nodes.index.equals(_pandas().RangeIndex(len(nodes))):
        raise BadInput(
            f"--silo {name}: {paths[0].name} has no column {key!r}, and an index of its own without a name: "
            f"name the index {key!r}, or reset it"
        )
    data = _of_nodes(name, paths[0], nodes, key, rows is not None, features)
    if len(paths) == 2:
        names = _words(nodes[key]) if key in nodes else [str(number) for number in range(len(nodes))]
        _add_links(name, paths[1], data, names)
    else:
        data.edge_index = torch.zeros(2, 0, dtype=torch.long)
    return data


def _with_features(name: str, path: Path, saved: OwnData, features: Path) -> Data:
    """A saved graph with the features of its folder."""
    if not isinstance(saved, Data):
        raise BadInput(
            f"--silo {name}: {path.name} has a list of graphs, and {FEATURES} is for one graph: leave it out"
        )
    if saved.get("x") is not None:
        raise BadInput(
            f"--silo {name}: {path.name} has x, and {FEATURES} lies beside it: keep one of the two"
        )
    saved.x = map_features(features, f"--silo {name}")
    y = saved.get("y")
    nodes = len(y) if isinstance(y, torch.Tensor) and y.dim() else None
    _check_rows(name, saved.x, nodes, f"y of {path.name}")
    return saved


def _check_rows(name: str, x: torch.Tensor, nodes: int | None, where: str) -> None:
    """Before anything is read of a file that may be large."""
    if nodes is not None and len(x) != nodes:
        raise BadInput(
            f"--silo {name}: {FEATURES} has {len(x)} rows, and {where} has {nodes}: give one row a node, in "
            "the same order"
        )


def _called(name: str, place: str) -> OwnData:
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
        raise BadInput(f"--silo {name}={place} fails: {type(error).__name__}: {why}") from error
    brought_in, notes = brought(made, f"--silo {name}={place}")
    if notes:
        warnings.warn(f"{name}: {'; '.join(notes)}", DataWarning, stacklevel=2)
    return _own_data(name, place, made if brought_in is None else brought_in)


def _saved(name: str, path: Path) -> OwnData:
    try:
        # places of sparse matrices are checked: torch writes where they say
        with torch.serialization.safe_globals(_PYG), torch.sparse.check_sparse_tensor_invariants():
            made = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise anything; torch's advice is to run the pickle
        advice = type(error).__name__ == "UnpicklingError"
        why = "" if advice else (str(error).splitlines() or [""])[0][:160]
        raise BadInput(
            f"--silo {name}: {path.name!r} is no file of tensors alone ({type(error).__name__}"
            f"{why and ': '}{why}); save it with torch.save(data.to_dict(), ...)"
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
        if not isinstance(key, str) or not all(type(one) in _VALUES or issparse(one) for one in listed):
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


def _pandas() -> ModuleType:
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise BadInput(
            "pandas, which reads tables, is not installed: pip install 'secure-fedgraph[data]'"
        ) from None


def _table(name: str, path: Path, known: tuple[str, ...], named: tuple[str, ...]) -> pd.DataFrame:
    """A table with columns of different names.

    Args:
        name: the owner's, for messages.
        path: of a ``.csv`` or ``.parquet`` file.
        known: columns with a meaning of their own.
        named: those of them that name nodes. Of a ``.csv`` they are words as they stand, so that 01 is not 1.

    Raises:
        BadInput: for a table that cannot be read, or only by a guess.
    """
    read = _comma_separated if path.suffix == ".csv" else _parquet
    with _readable(name, path):
        table = read(path, named)
    table.columns = [str(column) for column in table.columns]
    meanings = {column.lower(): column for column in known}
    for number, column in enumerate(table.columns):
        if not column.strip():
            raise BadInput(
                f"--silo {name}: {path.name}, column {number + 1} has no name: name it, or leave it out, "
                "with to_csv(index=False) for instance"
            )
        meant = meanings.get(column.strip().lower(), column)
        if meant != column:  # it would be a feature, the label too
            raise BadInput(f"--silo {name}: {path.name} has column {column!r}: write {meant!r}, or rename it")
    twice = table.columns[table.columns.duplicated()]
    if len(twice):
        raise BadInput(f"--silo {name}: {path.name} has column {str(twice[0])!r} twice; rename one")
    if not len(table):
        raise BadInput(f"--silo {name}: {path.name} has no rows")
    return table


def _comma_separated(path: Path, named: tuple[str, ...]) -> pd.DataFrame:
    pandas = _pandas()
    with path.open("rb") as file:
        head = file.readline(LONGEST_HEAD)
    if len(head) == LONGEST_HEAD or head.count(b",") >= MOST_COLUMNS:
        raise ValueError(
            f"its first line names {MOST_COLUMNS:,} columns or more; save wide features in a .pt file"
        )
    # as it stands, since pandas renames the second of two columns of a name
    first = pandas.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    columns = first.iloc[0].tolist()
    if len(columns) == 1 and re.search("[;\t]", columns[0]):
        raise ValueError("its columns are not separated by commas; save it with commas")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            table: pd.DataFrame = pandas.read_csv(
                path,
                dtype={column: str for column in named if column in columns},
                keep_default_na=False,  # NA may be a class, or somebody's id
                na_values=[""],
                low_memory=False,  # one type a column: in pieces, 1 and 1.0 would be two classes
                index_col=False,  # longer rows would make an index of the first column
            )
        except pandas.errors.ParserWarning:
            raise ValueError("its rows have more fields than its first line names") from None
    table.columns = columns
    return table


def _parquet(path: Path, named: tuple[str, ...]) -> pd.DataFrame:
    pandas = _pandas()
    facts = importlib.import_module("pyarrow.parquet").read_metadata(path)
    if facts.num_rows * facts.num_columns * 4 > MOST:  # a row of a few bits can be a gigabyte of floats
        raise ValueError(f"its {facts.num_rows} rows take more than {MOST >> 30} GiB")
    table: pd.DataFrame = pandas.read_parquet(path, engine="pyarrow")
    # an index that has a name is a column to whoever saved it
    return table.reset_index() if any(level is not None for level in table.index.names) else table


@contextmanager
def _readable(name: str, path: Path) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # parsers raise what they like
        why = (str(error).splitlines() or [""])[0][:160]
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        mend = "; save it as UTF-8" if isinstance(error, UnicodeError) else ""
        raise BadInput(f"--silo {name}: {path.name} cannot be read: {kind}{why}{mend}") from None


def _of_nodes(
    name: str, path: Path, table: pd.DataFrame, key: str, named: bool, features: Path | None
) -> Data:
    if key not in table and named:
        raise BadInput(f"--silo {name}: {path.name} has no column {key!r}, which --rows names")
    taken = {key, LABEL, SPLIT}
    columns = [column for column in table.columns if column not in taken]
    if features is not None:
        if columns:
            raise BadInput(
                f"--silo {name}: {path.name} has column {columns[0]!r}, and features are in {FEATURES}: "
                f"leave out the column, or {FEATURES}"
            )
        data = Data(x=map_features(features, f"--silo {name}"))
        _check_rows(name, data.x, len(table), path.name)
    elif not columns:
        raise BadInput(
            f"--silo {name}: {path.name} has no column of features beside {', '.join(sorted(taken))}"
        )
    else:
        data = Data(x=torch.from_numpy(_numbers(name, path, table, columns)), feature_names=columns)
    if key in table:
        if table[key].isna().any():
            raise BadInput(f"--silo {name}: {path.name} has a row without {key}")
        words = _words(table[key])
        again = _pandas().Index(words).duplicated()
        if again.any():
            twice = words[int(again.argmax())]
            raise BadInput(f"--silo {name}: {path.name} has {key} {twice[:60]!r} more than once")
        if named:
            data[key] = words
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
    if LABEL not in table and not named:
        raise BadInput(
            f"--silo {name}: {path.name} has no column {LABEL!r}: give it; owners of columns need --rows"
        )
    return data


def _numbers(name: str, path: Path, table: pd.DataFrame, columns: list[str]) -> np.ndarray:
    is_number, is_complex = _pandas().api.types.is_numeric_dtype, _pandas().api.types.is_complex_dtype
    for column in columns:
        if not is_number(table[column]) or is_complex(table[column]):
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
    with np.errstate(over="ignore"):  # infinite numbers are refused with the graph
        return np.array(table[columns].to_numpy(dtype=np.float32), order="C")


def _first_word(column: pd.Series[Any]) -> str:
    for value in column:
        try:
            number = float(value)
        except (TypeError, ValueError):
            return repr(value)[:40]
        if isinstance(value, str) and not np.isfinite(number):
            return repr(value)[:40]
    return "something else than numbers"


def _labels(name: str, path: Path, column: pd.Series[Any]) -> tuple[torch.Tensor, list[str]]:
    """Labels and, where they are words, the classes' names; an empty one is -1."""
    absent = column.isna().to_numpy()
    given = column[~absent]
    if not len(given):
        return torch.full((len(column),), -1), []
    values = np.full(len(column), -1, dtype=np.int64)
    kinds = _pandas().api.types
    if kinds.is_numeric_dtype(given) and not kinds.is_bool_dtype(given):
        numbers = given.to_numpy(dtype=np.float64)
        if not np.array_equal(numbers, np.round(numbers)) or abs(numbers).max() > 2**31:
            odd = numbers[(numbers != np.round(numbers)) | (abs(numbers) > 2**31)][0]
            raise BadInput(
                f"--silo {name}: {path.name}, label is no whole number ({odd:g}): number classes from 0, or "
                "give words"
            )
        values[~absent] = numbers.astype(np.int64)
        return torch.from_numpy(values), []
    words = given.astype(str).str.strip()
    classes = sorted(set(words) - {""})
    if odd_word := next((word for word in classes if word.lower() in _ABSENT), None):
        raise BadInput(
            f"--silo {name}: {path.name}, label {odd_word!r} may be a class or no label: leave it empty, or "
            "name the class otherwise"
        )
    place = {word: number for number, word in enumerate(classes)} | {"": -1}
    values[~absent] = words.map(place).to_numpy(dtype=np.int64)
    return torch.from_numpy(values), classes


def _words(column: pd.Series[Any]) -> list[str]:
    """What names nodes, as words: ids of a parquet file may be numbers, those of a .csv are not."""
    whole = (isinstance(one, float) and one.is_integer() for one in column)
    return [str(int(one) if number else one).strip() for one, number in zip(column, whole, strict=True)]


def _add_links(name: str, path: Path, data: Data, names: list[str]) -> None:
    pandas, table = _pandas(), _table(name, path, (*ENDS, WEIGHT), named=ENDS)
    for column in ENDS:
        if column not in table:
            raise BadInput(
                f"--silo {name}: {path.name} has no column {column!r}: name the links' ends source and target"
            )
    place = pandas.Index(names)
    ends = []
    for column in ENDS:
        if table[column].isna().any():
            row = int(table[column].isna().to_numpy().argmax())
            raise BadInput(
                f"--silo {name}: {path.name}, column {column!r} is empty in row {row + 1}; fill it in"
            )
        found = place.get_indexer(_words(table[column]))
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


def read_one(place: str) -> OwnData:
    """Data that are handed out to owners, from a user's own files; unchanged files are read once.

    Args:
        place: as :func:`read_silo`'s.

    Returns:
        A graph, or a list of graphs.

    Raises:
        BadInput: as :func:`read_silo`.
    """
    return _one(place, state_of(place))


@lru_cache(maxsize=1)
def _one(place: str, _: str) -> OwnData:
    try:
        return read_silo(_WHOLE, place)
    except BadInput as error:
        said = str(error).replace(f"--silo {_WHOLE}=", "--data ").replace(f"--silo {_WHOLE}:", "--data:")
        raise BadInput(said) from None


def _behind(place: str) -> list[Path]:
    """The files that a place names or, of a folder, those that are read; none for a function."""
    tables = [*(f"{kind}{suffix}" for kind in (NODES, EDGES) for suffix in TABLES), GRAPH, FEATURES]
    paths = [] if is_function(place) else [Path(part) for part in place.split(",")]
    files = [
        one
        for path in paths
        for one in ([path / table for table in tables] if os.path.isdir(path) else [path])
    ]
    return [one for one in files if os.path.isfile(one)]


def state_of(place: str) -> str:
    """What changes when the files behind a place do; nothing for a function."""
    states = [(str(one), one.stat()) for one in _behind(place)]
    return " ".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)


def digest_of_places(places: Mapping[str, str]) -> str:
    """SHA-256 (hex) of the files behind all places: results of other data are not taken for theirs."""
    digest = hashlib.sha256()
    for name, place in sorted(places.items()):
        digest.update(f"{name}={place} ".encode())
        for path in _behind(place):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
