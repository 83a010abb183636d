"""Several relations between the same labelled nodes: the partial HeriGraph of Venice (Bai et al. 2022)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.graph.data.sources import Raw, readable
from secure_fedgraph.graph.data.store import Tables, digest_of
from secure_fedgraph.graph.kinds import RelationsDataset
from secure_fedgraph.loading import postponed

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = postponed("scipy.sparse")

RELATIONS = ("social", "spatial", "temporal", "union")
SPLIT = ("train", "val", "test")
digest = digest_of


def read(raw: Raw, files: list[Path]) -> Tables:
    """Nodes keep their published numbers, because the published split names them by these.

    The class of a post is its heritage attribute; the files hold heritage values besides, which are
    left out.

    Returns:
        per relation ``<name>_edges [2, E]`` and ``<name>_weights [E]``; ``y [N]``, ``labelled [N]`` and
        ``train``, ``val``, ``test`` node numbers.

    Raises:
        BadInput: files that do not fit each other.
    """
    *matrices, labels, split = files
    with readable(files[0].parent):
        with np.load(labels, allow_pickle=False) as kept:
            tables: Tables = {"y": kept["att_hard"].astype(np.int64), "labelled": kept["att_labelled"]}
        nodes = len(tables["y"])
        for name, path in zip(RELATIONS, matrices, strict=True):
            matrix = sparse.load_npz(path).tocsr()  # load_npz opens no pickle
            matrix.sum_duplicates()
            if matrix.shape != (nodes, nodes) or (matrix != matrix.T).nnz:
                raise ValueError(f"{path.name} is not a symmetric matrix of {nodes} rows")
            links = matrix.tocoo()
            keep = links.row != links.col
            tables[f"{name}_edges"] = np.stack([links.row[keep], links.col[keep]]).astype(np.int64)
            tables[f"{name}_weights"] = links.data[keep].astype(np.float32)
        with np.load(split, allow_pickle=False) as kept:
            for name in SPLIT:
                tables[name] = np.sort(kept[f"{name}_idx"])
        if np.any(np.bincount(np.concatenate([tables[name] for name in SPLIT]), minlength=nodes)[nodes:]):
            raise ValueError(f"the split names a node above {nodes - 1}")
        return tables


def build(name: str, tables: Tables, source: str, digest: str) -> RelationsDataset:
    y = torch.from_numpy(tables["y"])
    relations = {
        each: Data(
            edge_index=torch.from_numpy(tables[f"{each}_edges"]),
            edge_weight=torch.from_numpy(tables[f"{each}_weights"]),
            num_nodes=len(y),
        )
        for each in RELATIONS
    }
    graph = Data(
        y=y,
        labelled=torch.from_numpy(tables["labelled"]),
        edge_index=relations.pop("union").edge_index,
        num_nodes=len(y),
    )
    for each in SPLIT:
        graph[f"{each}_mask"] = torch.zeros(len(y), dtype=torch.bool)
        graph[f"{each}_mask"][torch.from_numpy(tables[each])] = True
    return RelationsDataset(name, graph, relations, source, digest, 0, int(y.max()) + 1)
