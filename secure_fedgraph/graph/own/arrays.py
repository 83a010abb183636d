"""A graph in a ``.npz`` file of arrays, as tolokers and the other heterophilous graphs are published."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.sample.links import EDGE_FIELDS, distinct_pairs

MOST = 2**33
"""Bytes of all arrays together, unpacked."""
NAMES = {"node_features": "x", "node_labels": "y", **{f"{key}s": key for key in MASKS}}
"""Published names -> the fields of a ``Data``, which may be the arrays' names too."""
FIELDS = ("x", "y", "edge_index", *EDGE_FIELDS, *MASKS)


def arrays_in(path: Path, who: str) -> Data:
    """The graph in a file; no pickle runs.

    Args:
        path: of a file with ``node_features [N, F]``, ``node_labels [N]``, ``edges [links, 2]``, each link
            once or in both directions, and perhaps ``train_masks``, ``val_masks`` and ``test_masks [splits,
            N]``; or with arrays that are called as the fields of a PyG ``Data``.
        who: whose it is, before messages, such as ``--silo bank-a: ``.

    Returns:
        The arrays as tensors; every link of ``edges`` in both directions.

    Raises:
        BadInput: for a file that is no such one, naming the array.
    """
    name = f"{who}{path.name}"
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as packed:
            if sum(one.file_size for one in packed.infolist()) > MOST:
                raise BadInput(f"{name} unpacks to more than {MOST >> 30} GiB: give a smaller graph")
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                if key == "edges" or NAMES.get(key, key) in FIELDS:
                    arrays[NAMES.get(key, key)] = file[key]
    except BadInput:
        raise
    except Exception as error:  # damaged archives raise anything
        why = (str(error).splitlines() or [""])[0][:160]
        raise BadInput(
            f"{name} is no .npz file of arrays ({type(error).__name__}: {why}): save it with numpy.savez"
        ) from None
    odd = next((key for key, one in arrays.items() if one.dtype.kind not in "biuf"), None)
    if odd is not None:
        raise BadInput(f"{name}: {odd} is an array of {arrays[odd].dtype}; give numbers")
    edges = arrays.pop("edges", None)
    if edges is not None:
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
            raise BadInput(
                f"{name}: edges has shape {edges.shape} of {edges.dtype}; give whole numbers [links, 2]"
            )
        once = torch.from_numpy(edges.astype(np.int64)).t()
        if once.numel() and int(once.min()) < 0:
            raise BadInput(f"{name}: edges names node {int(once.min())}, and nodes count from 0")
        arrays["edge_index"] = distinct_pairs(torch.cat([once, once.flip(0)], dim=1))
    if "edge_index" not in arrays:
        raise BadInput(f"{name} has no array edges or edge_index: give the links")
    nodes = len(arrays["x"]) if np.ndim(arrays.get("x", 0)) else 0
    for key in MASKS:
        mask = arrays.get(key)
        if mask is not None and mask.ndim == 2 and mask.shape[1] == nodes != mask.shape[0]:
            arrays[key] = np.ascontiguousarray(mask.T)
    # torch takes a few types; the others are named by the checks that follow
    return Data(**{k: torch.from_numpy(one) if _plain(one) else one for k, one in arrays.items()})


def _plain(one: Any) -> bool:
    known = ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
    return isinstance(one, np.ndarray) and one.dtype.isnative and one.dtype.str[1:] in ("b1", *known)
