"""The files that an owner's folder may hold, and none under another name that would be left out."""

from __future__ import annotations

import os
from pathlib import Path

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.tables.suffixes import SUFFIXES

NODES, EDGES = "nodes", "edges"
"""The names of the two tables in a folder."""
FEATURES, GRAPH = "features.npy", "graph.pt"
"""In a folder, features that are mapped, and a saved graph in the place of the tables."""


def files_in(who: str, folder: Path) -> tuple[list[Path], Path | None]:
    """The files of a graph in a folder, and that of its features where these are mapped.

    Args:
        who: whose, before messages.
        folder: an owner's.

    Raises:
        BadInput: where there is no graph, and for tables or features that would not be read.
    """
    features = folder / FEATURES if os.path.lexists(folder / FEATURES) else None
    if features is not None and not features.is_file():  # a link to a disk that is gone, too
        raise BadInput(f"{who}{FEATURES} in {folder} is no file: put it there, or take it away")
    if (folder / GRAPH).is_file():
        paths = [folder / GRAPH]
    else:
        paths = [found for kind in (NODES, EDGES) if (found := _table_in(who, folder, kind)) is not None]
    _check_nothing_else(who, folder, paths if features is None else [*paths, features])
    if not paths or (paths[0].name != GRAPH and paths[0].name.partition(".")[0] != NODES):
        raise BadInput(f"{who}{folder} has no nodes.csv, nodes.parquet or graph.pt")
    return paths, features


def _table_in(who: str, folder: Path, kind: str) -> Path | None:
    found = [path for suffix in SUFFIXES if (path := folder / f"{kind}{suffix}").is_file()]
    if len(found) > 1:
        raise BadInput(f"{who}{folder} has {found[0].name} and {found[1].name}: keep one")
    return found[0] if found else None


def _check_nothing_else(who: str, folder: Path, read: list[Path]) -> None:
    """A table under another name would be left out, and with it the owner's links; so would features."""
    for path in sorted(folder.glob("*")):
        hidden = path.name.startswith((".", "~$"))  # what macOS and office programs leave beside a table
        named = path.name.partition(".")[0].lower() in (NODES, EDGES)
        of_a_graph = named or (path.name.lower().endswith((*SUFFIXES, ".npy")) and path.is_file())
        if of_a_graph and path not in read and not hidden:
            raise BadInput(
                f"{who}{path.name!r} in {folder} is not read: nodes are in nodes.csv and links in edges.csv "
                f"(or .parquet), or both in {GRAPH}, and mapped features in {FEATURES}; rename or move it"
            )
