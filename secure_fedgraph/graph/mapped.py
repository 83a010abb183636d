"""Features that stay on disk: a ``.npy`` file is mapped, and the rows that are used are read from it."""

from __future__ import annotations

import faulthandler
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from secure_fedgraph.core.errors import BadInput

MOST = 2**40
"""Bytes of a file that is mapped. It takes no memory; checks and digests read all of it."""
SAVE = "save it with numpy.save(path, numpy.ascontiguousarray(x, dtype='float32'))"
_FLOAT = np.dtype("<f4")
_MAPS = WeakIdKeyDictionary()
"""A tensor that lies on a mapped file -> that file, as it was when it was mapped."""


@dataclass(frozen=True)
class _Map:
    path: Path
    state: tuple[int, int, int]
    """Inode, bytes and time of the last change."""


def map_features(path: Path, who: str) -> Tensor:
    """The matrix in a ``.npy`` file, ``[nodes, features]`` float32, without reading it.

    Guarantees:
        - nothing is allocated or mapped before type, order and shape are checked against the file's size;
        - no pickle runs, and the file is never written to: a page that somebody writes to becomes a private
          copy.

    Needs:
        - that the file stays as it is. Where it is written to, rows that were not read yet are the new ones;
          where it is cut off, the process dies of SIGBUS, and says so on its standard error.
          :func:`check_unchanged` sees both, where it is called.

    Args:
        path: of the file.
        who: whose it is, for messages.

    Raises:
        BadInput: for anything else than a whole matrix of float32, row after row.
    """
    name = f"{who}: {path.name}"
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise BadInput(f"{name} is no regular file: {SAVE}")
            shape, start = _header(file, name)
            size = start + shape[0] * shape[1] * _FLOAT.itemsize
            if size != state.st_size:
                what = "is cut off" if state.st_size < size else "has more than one matrix"
                raise BadInput(
                    f"{name} {what}: its header says shape {shape}, which takes {size} bytes, and it has "
                    f"{state.st_size}; {SAVE}"
                )
            if size > MOST:
                raise BadInput(f"{name} has {size} bytes, and at most {MOST} are mapped: give fewer features")
            mapped = np.memmap(file, dtype=_FLOAT, mode="c", offset=start, shape=shape)
    except OSError as error:
        raise BadInput(f"{name} cannot be mapped: {error}") from None
    # a file that is cut off while it is mapped kills the process, and should not do so silently
    if not faulthandler.is_enabled():
        with suppress(Exception):  # standard error may be no file
            faulthandler.enable()
    x = torch.from_numpy(mapped)
    _MAPS[x] = _Map(path, _state(state))
    return x


def is_mapped(x: object) -> bool:
    """Whether a tensor lies on a mapped file; a copy of it does not."""
    return isinstance(x, Tensor) and x in _MAPS


def check_unchanged(x: object) -> None:
    """Checks that the file under a mapped tensor is the one that was mapped; nothing for other tensors.

    Raises:
        BadInput: where it was written to, cut off, replaced or removed.
    """
    if not isinstance(x, Tensor) or (kept := _MAPS.get(x)) is None:
        return
    try:
        state = _state(kept.path.stat())
    except OSError:
        state = None
    if state != kept.state:
        raise BadInput(
            f"{kept.path} changed while it was in use: features of one run are those of one file; start the "
            "run again, and leave the file alone"
        )


def _state(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_ino, state.st_size, state.st_mtime_ns


def _header(file: BinaryIO, name: str) -> tuple[tuple[int, int], int]:
    """The shape, and where the numbers begin."""
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):  # later ones may have headers of gigabytes
            raise ValueError(f"version {version} of the format")
        shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
    except Exception as error:  # a damaged header raises what Python's parser and tokenizer raise
        why = (str(error).splitlines() or [""])[0][:120]
        raise BadInput(f"{name} is no .npy file of one matrix ({why}): {SAVE}") from None
    if kind != _FLOAT:
        raise BadInput(f"{name} has dtype {kind}, and features that are mapped are float32: {SAVE}")
    if fortran:
        raise BadInput(f"{name} is stored column after column (Fortran order): {SAVE}")
    if len(shape) != 2 or min(shape) < 1:
        raise BadInput(f"{name} has shape {shape}: give [nodes, features], each 1 or more; {SAVE}")
    return (int(shape[0]), int(shape[1])), file.tell()
