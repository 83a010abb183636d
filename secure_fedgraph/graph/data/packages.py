"""Data that an installed package carries: the package is located, never imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from secure_fedgraph.graph.data.rawfiles import RAW

if TYPE_CHECKING:  # where files lie is asked without torch
    from torch_geometric.data import Data


@dataclass(frozen=True)
class Carrier:
    """Which package carries a data set, in which folder of its own, in which files."""

    package: str
    folder: str
    files: tuple[str, ...]


CARRIERS = {
    "cora": Carrier(
        "graphdatascience", "resources/cora", ("cora_nodes.parquet.gzip", "cora_rels.parquet.gzip")
    ),
    "mutag": Carrier("grakel", "tests/data/MUTAG", RAW["mutag"].files),
}


def carried(name: str) -> list[Path]:
    """The files of a data set in the package that carries it; none if that package is not installed."""
    if name not in CARRIERS:
        return []
    carrier = CARRIERS[name]
    spec = importlib.util.find_spec(carrier.package)
    for place in (spec.submodule_search_locations or []) if spec else []:
        files = [Path(place) / carrier.folder / file for file in carrier.files]
        if all(path.is_file() for path in files):
            return files
    return []


def label(name: str) -> str:
    package = CARRIERS[name].package
    try:
        return f"package {package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:  # on the path without having been installed
        return f"package {package}"


def read_cora(files: list[Path]) -> Data:
    """Node rows ``nodeId, subject, features`` and citation rows ``sourceNodeId, targetNodeId``."""
    import numpy as np
    import pyarrow.parquet
    import torch
    from torch_geometric.data import Data

    nodes, citations = (pyarrow.parquet.read_table(path) for path in files)
    number = nodes["nodeId"].to_numpy()
    x = nodes["features"].combine_chunks().flatten().to_numpy().reshape(len(number), -1)
    order = np.argsort(number)
    ends = np.stack([citations[key].to_numpy() for key in ("sourceNodeId", "targetNodeId")])
    return Data(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.tensor(nodes["subject"].to_numpy()),
        edge_index=torch.from_numpy(order[np.searchsorted(number, ends, sorter=order)]),
    )
