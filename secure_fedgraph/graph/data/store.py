"""Arrays that were read once, kept in the cache folder without a pickle, and their hash."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 2**32
"""The largest feature matrix that is kept, in entries."""
Tables = dict[str, NDArray[Any]]
"""The content of a data set as named arrays; ``x`` is ``[N, F]`` float32 and mostly zeros."""


def digest_of(tables: Tables) -> str:
    """SHA-256 (hex) of every array's name, type, shape and little-endian content, by name."""
    digest = hashlib.sha256()
    for key in sorted(tables):
        array = np.ascontiguousarray(tables[key], dtype=tables[key].dtype.newbyteorder("<"))
        digest.update(f"{key} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()


def digest_of_data(graph: Any) -> str:
    """SHA-256 (hex) of every tensor of a PyG ``Data``."""
    return digest_of(
        {key: np.asarray(value) for key, value in graph.to_dict().items() if hasattr(value, "numpy")}
    )


def load_or_read(
    store: Path, read: Callable[[], Tables], digest: Callable[[Tables], str] = digest_of
) -> tuple[Tables, str]:
    """The arrays in ``store`` if it is an intact file; otherwise those of ``read``, which are then stored."""
    with contextlib.suppress(Exception):  # a damaged file can raise anything: it is made again
        return _unpack(store, digest)
    tables = read()
    computed = digest(tables)
    with contextlib.suppress(OSError):  # a cache folder that cannot be written only costs time
        _pack(store, tables, computed)
    return tables, computed


def _pack(store: Path, tables: Tables, digest: str) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    arrays = dict(tables)
    if "x" in arrays:
        x = arrays.pop("x")
        row, column = x.nonzero()
        arrays |= {"x_shape": np.array(x.shape), "x_value": x[row, column]}
        arrays |= {"x_row": row.astype(np.int32), "x_column": column.astype(np.int32)}
    with tempfile.TemporaryDirectory(dir=store.parent, prefix=".part-") as scratch:
        part = Path(scratch) / store.name
        np.savez(part, digest=np.array(digest), **arrays)  # type: ignore[arg-type]
        os.replace(part, store)  # whole or not at all, also for a second process


def _unpack(store: Path, digest: Callable[[Tables], str]) -> tuple[Tables, str]:
    with store.open("rb") as file, np.load(file, allow_pickle=False) as kept:
        tables: Tables = {key: kept[key] for key in kept.files}
    expected = str(tables.pop("digest"))
    if "x_shape" in tables:
        rows, columns = (int(size) for size in tables.pop("x_shape"))
        if not 0 <= rows * columns <= MOST:
            raise ValueError(f"{store} is damaged")
        x = np.zeros((rows, columns), dtype=np.float32)
        x[tables.pop("x_row"), tables.pop("x_column")] = tables.pop("x_value")
        tables["x"] = x
    if digest(tables) != expected:
        raise ValueError(f"{store} is damaged")
    return tables, expected
