"""One graph with features and a class per node, in canonical order."""

from __future__ import annotations

from pathlib import Path

import torch
from torch_geometric.data import Data

from secure_fedgraph.graph.data import canonical, packages, sources
from secure_fedgraph.graph.data.checks import check_graph
from secure_fedgraph.graph.data.sources import Raw
from secure_fedgraph.graph.data.store import Tables
from secure_fedgraph.graph.kinds import GraphDataset

KEYS = ("x", "y", "edge_index")


def stamp(raw: Raw) -> str:
    """What besides the files decides the content; part of the name under which it is kept."""
    return str(canonical.VERSION)


def read(raw: Raw, files: list[Path]) -> Tables:
    """The canonical graph of PyG's raw files, or of the package's files."""
    if files[0].name == packages.CARRIERS["cora"].files[0]:
        graph = packages.read_cora(files)
    else:
        (graph,) = sources.read_pyg(raw, files)
    check_graph(graph, raw.argument)  # a class is renumbered below, whatever its number
    graph = canonical.canonical(graph)
    return {key: graph[key].numpy() for key in KEYS}


def digest(tables: Tables) -> str:
    return canonical.content_digest(_graph(tables))


def build(name: str, tables: Tables, source: str, digest: str) -> GraphDataset:
    return described(name, _graph(tables), source, digest)


def described(name: str, graph: Data, source: str, digest: str) -> GraphDataset:
    """A checked graph as a data set, with its numbers of features and classes."""
    check_graph(graph, name)
    return GraphDataset(name, graph, source, digest, graph.x.shape[1], int(graph.y.max()) + 1)


def _graph(tables: Tables) -> Data:
    return Data(**{key: torch.from_numpy(tables[key]) for key in KEYS})
