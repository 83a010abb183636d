"""Sets of small graphs, each with one class: proteins, molecules, casts of films."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data import sources
from secure_fedgraph.graph.data.sources import Raw
from secure_fedgraph.graph.data.store import Tables, digest_of
from secure_fedgraph.graph.kinds import GraphSetDataset

VERSION = 1
"""Version of the arrays made from the raw files."""
EXTRA = "molecules"
DEGREES = 135
"""The largest degree with a feature of its own in graphs without features: IMDB-BINARY's largest."""


def stamp(raw: Raw) -> str:
    """What decides the content besides the files: for molecules the version of rdkit, which reads them.

    Raises:
        BadInput: for molecules, if rdkit is not installed.
    """
    return f"{VERSION}-rdkit{rdkit_version()}" if raw.pyg == "MoleculeNet" else str(VERSION)


def rdkit_version() -> str:
    """The version of the installed rdkit.

    Raises:
        BadInput: rdkit is not installed.
    """
    try:
        return str(importlib.import_module("rdkit").__version__)
    except ImportError as error:
        raise BadInput(
            f"molecules are read by the package rdkit, which is not installed; install it with "
            f"pip install 'secure-fedgraph[{EXTRA}]'."
        ) from error


def read(raw: Raw, files: list[Path]) -> Tables:
    """All graphs end to end, in the published order.

    Returns:
        ``x [sum n, F]``, ``edge_index [2, sum e]`` counting nodes from 0 in every graph,
        ``edge_attr [sum e, D]`` where links have kinds, ``y``, ``nodes`` and ``edges [graphs]``.
    """
    graphs = sources.read_pyg(raw, files)
    with sources.readable(files[0].parent):
        tables = {
            "edge_index": torch.cat([graph.edge_index for graph in graphs], dim=1).numpy(),
            "y": _classes(torch.cat([graph.y.flatten() for graph in graphs]).numpy()),
            "nodes": np.array([graph.num_nodes for graph in graphs], dtype=np.int64),
            "edges": np.array([graph.edge_index.shape[1] for graph in graphs], dtype=np.int64),
        }
        for key in ("x", "edge_attr"):
            if graphs[0].get(key) is not None:
                tables[key] = torch.cat([graph[key] for graph in graphs]).to(torch.float32).numpy()
    check(tables, str(files[0].parent))
    if "x" not in tables:
        tables["x"] = _one_hot_degrees(tables)
    return tables


digest = digest_of


def build(name: str, tables: Tables, source: str, digest: str) -> GraphSetDataset:
    """The graphs as views into the tables."""
    check(tables, name)
    nodes, edges = tables["nodes"].tolist(), tables["edges"].tolist()
    parts: dict[str, tuple[torch.Tensor, ...]] = {
        "x": torch.from_numpy(tables["x"]).split(nodes),
        "y": torch.from_numpy(tables["y"]).split(1),
        "edge_index": torch.from_numpy(tables["edge_index"]).split(edges, dim=1),
    }
    if "edge_attr" in tables:
        parts["edge_attr"] = torch.from_numpy(tables["edge_attr"]).split(edges)
    graphs = [Data(**dict(zip(parts, each, strict=True))) for each in zip(*parts.values(), strict=True)]
    return GraphSetDataset(
        name, graphs, source, digest, tables["x"].shape[1], int(tables["y"].max(initial=0)) + 1
    )


def check(tables: Tables, name: str) -> None:
    """Refuse a set of graphs that cannot be used as given.

    Raises:
        BadInput: no graph, an empty graph, a link that leaves its graph, a feature that is not finite or
            a class below 0; the first graph with it is named.
    """
    nodes, edges = tables["nodes"], tables["edges"]
    if not len(nodes) or len(tables["y"]) != len(nodes):
        raise BadInput(
            f"{name}: {len(nodes)} graphs and {len(tables['y'])} classes; give one class per graph."
        )
    of_edge = np.repeat(np.arange(len(edges)), edges)
    ends = tables["edge_index"]
    wrong = {
        "has no nodes": np.flatnonzero(nodes == 0),
        "has a class below 0": np.flatnonzero(tables["y"] < 0),
        "has a link to a node outside of it": of_edge[((ends < 0) | (ends >= nodes[of_edge])).any(axis=0)],
    }
    if "x" in tables:
        of_node = np.repeat(np.arange(len(nodes)), nodes)
        wrong["has a feature that is not finite"] = of_node[~np.isfinite(tables["x"]).all(axis=1)]
    for what, wrong_graphs in wrong.items():
        if len(wrong_graphs):
            raise BadInput(f"{name}: graph {int(wrong_graphs[0])} {what}; mend the files or drop that graph.")


def _classes(y: NDArray[Any]) -> NDArray[np.int64]:
    classes = y.astype(np.int64)
    if not np.array_equal(classes, y):
        raise ValueError("a class is not a whole number")
    return classes


def _one_hot_degrees(tables: Tables) -> NDArray[np.float32]:
    """``[sum n, DEGREES + 1]``: the features that graphs without features get (``algorithms.md`` 5.4).

    The width is a constant, whatever the graphs are, because it is also the model's, which everybody sees.
    """
    starts = np.cumsum(tables["nodes"]) - tables["nodes"]
    of_edge = np.repeat(np.arange(len(tables["edges"])), tables["edges"])
    degrees = np.bincount(tables["edge_index"][0] + starts[of_edge], minlength=int(tables["nodes"].sum()))
    x = np.zeros((len(degrees), DEGREES + 1), dtype=np.float32)
    x[np.arange(len(degrees)), np.minimum(degrees, DEGREES)] = 1
    return x
