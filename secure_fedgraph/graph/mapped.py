"""Features that stay on disk: a ``.npy`` file is mapped, and the rows that are used are read from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from secure_fedgraph.core.errors import BadInput

SAVE = "save it with numpy.save(path, numpy.ascontiguousarray(x, dtype='float32'))"
_MAPPED = WeakIdKeyDictionary()
"""Tensors that lie on a mapped file."""


def map_features(path: Path, who: str) -> Tensor:
    """The matrix in a ``.npy`` file, ``[nodes, features]`` float32, without reading it.

    Guarantees:
        - no pickle runs, nothing is allocated, and the file is never written to: a page that somebody writes
          to becomes a private copy.

    Needs:
        - that the file stays as it is: where it is cut off while it is mapped, the process dies of SIGBUS.

    Args:
        path: of the file.
        who: whose it is, before messages, such as ``--silo bank-a: ``.

    Raises:
        BadInput: for anything else than a whole matrix of float32, row after row.
    """
    name = f"{who}{path.name}"
    try:
        mapped = np.lib.format.open_memmap(path, mode="c")
    except Exception as error:  # a damaged header raises what Python's parser and tokenizer raise
        why = (str(error).splitlines() or [""])[0][:120]
        raise BadInput(f"{name} is no .npy file of one whole matrix ({why}): {SAVE}") from None
    if mapped.dtype != np.dtype("<f4") or not mapped.flags.c_contiguous:
        raise BadInput(f"{name} is no matrix of float32, row after row: {SAVE}")
    if mapped.ndim != 2 or min(mapped.shape) < 1:
        raise BadInput(f"{name} has shape {mapped.shape}: give [nodes, features], each 1 or more; {SAVE}")
    x = torch.from_numpy(mapped)
    _MAPPED[x] = True
    return x


def is_mapped(x: object) -> bool:
    """Whether a tensor lies on a mapped file; a copy of it does not."""
    return isinstance(x, Tensor) and x in _MAPPED
