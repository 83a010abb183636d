"""Whatever owners come with, as one federation's data."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput, check_whole, wrong_type
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.data.store import digest_of_data
from secure_fedgraph.graph.own.objects import brought
from secure_fedgraph.graph.partition.partition import NodeAssignment, from_assignment
from secure_fedgraph.graph.partition.result import owner_names
from secure_fedgraph.graph.schema import Task
from secure_fedgraph.graph.silos.agreement import check_names
from secure_fedgraph.graph.silos.columns import owners_of_columns
from secure_fedgraph.graph.silos.result import Silos
from secure_fedgraph.graph.silos.rows import owners_of_rows

OwnData: TypeAlias = Data | Sequence[Data]
"""What one owner has: a graph, or a set of graphs."""


def are_silos(data: object) -> TypeGuard[Mapping[str, OwnData] | Sequence[OwnData]]:
    """Whether it is several owners' data, rather than one data set that is to be handed out."""
    return isinstance(data, Mapping | list | tuple) and not isinstance(data, Data)


def silos_of(
    data: Mapping[str, OwnData] | Sequence[OwnData],
    seed: int,
    classes: int | None = None,
    rows: str | None = None,
    holders: int = 1,
    task: str | None = None,
    column: int | None = None,
) -> Silos:
    """Owners' own data, checked against each other.

    Args:
        data: each owner's graph or set of graphs, by name, or what
            :func:`~secure_fedgraph.graph.own.objects.brought` makes one of; a list gives ``owner-0`` and so
            on. Owners are sorted by name.
        seed: of everything that is drawn.
        classes: how many there are, where it is more than the data show.
        rows: for owners of columns, the field that names their rows.
        holders: how many owners may hold the same node or graph; a budget counts them all. Owners of columns
            hold every node together.
        task: what is learned, where the answers do not show it.
        column: which of several splits is used.

    Raises:
        BadInput: naming the owner, what is wrong, and the mend.
    """
    named = dict(data) if isinstance(data, Mapping) else dict(zip(owner_names(len(data)), data, strict=True))
    check_names(named)
    if classes is not None:
        check_whole("classes", classes, 1)
    check_whole("holders", holders, 1)
    if holders > len(named):
        raise BadInput(f"holders = {holders}: there are {len(named)} owners; give 1 to {len(named)}")
    if rows is not None and holders != 1:
        raise BadInput(
            f"holders = {holders}: with rows = {rows!r} every owner holds every node; leave holders out"
        )
    given, notes = dict[str, Any](), list[str]()
    for name in sorted(named):
        made, said = brought(named[name], f"data of {name}")
        given[name] = named[name] if made is None else made
        notes += [f"{name}: {one}" for one in said]
    graphs = {name: one for name, one in given.items() if isinstance(one, Data)}
    sets = {name: one for name, one in given.items() if isinstance(one, list | tuple)}
    for name, one in given.items():
        if name not in graphs and name not in sets:
            raise wrong_type(f"data of {name}", one, "give a PyG Data, or a list of them for a set of graphs")
    if graphs and sets:
        raise BadInput(
            f"{next(iter(graphs))} has one graph and {next(iter(sets))} a set of graphs: give all the same"
        )
    if rows is not None:
        if sets or not isinstance(rows, str):
            raise BadInput(f"rows = {rows!r}: name a field of each owner's one Data, such as 'id'")
        if task not in (None, Task.CLASSES):
            raise BadInput(
                f"task = {str(task)!r}: owners of columns (rows = {rows!r}) learn classes; leave it out"
            )
        return owners_of_columns(graphs, rows, seed, classes)
    silos = owners_of_rows(sets or graphs, seed, classes, holders, task, column, notes)
    _warn_of_copies(silos, holders)
    return silos


def _warn_of_copies(silos: Silos, holders: int) -> None:
    """The same data at two owners are a mistake, or both hold each node, which costs twice what is said."""
    same: dict[str, list[str]] = {}
    for name, graph in silos.owners.items():
        same.setdefault(digest_of_data(Data(x=graph.x, edge_index=graph.edge_index)), []).append(name)
    names = max(same.values(), key=len)
    if len(names) > holders:
        warnings.warn(
            f"{' and '.join(names)} have the same features and links: give each its own data, or say how "
            f"many hold the same node (holders = {len(names)})",
            DataWarning,
            stacklevel=4,
        )


def digest_of_silos(silos: Silos) -> str:
    """SHA-256 (hex) of every owner's name and data."""
    digest = hashlib.sha256()
    for name, graph in silos.owners.items():
        digest.update(f"{name} {digest_of_data(graph)} ".encode())
    return digest.hexdigest()


def parts_by_owner(
    graph: Data, owners: Sequence[int | str] | Tensor
) -> tuple[tuple[str, ...], NodeAssignment]:
    """The owners' names, sorted, and the nodes of each.

    Args:
        graph: with ``N`` nodes.
        owners: ``[N]`` whole numbers from 0, or names.

    Raises:
        BadInput: for another length or other values.

    >>> triangle = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    >>> names, parts = parts_by_owner(triangle, ["b", "a", "b"])
    >>> names, parts.sizes, parts.missing_links
    (('a', 'b'), (1, 2), 2)
    """
    given = owners.tolist() if isinstance(owners, Tensor | np.ndarray) else owners
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise wrong_type("owners", owners, "give a whole number from 0 for each node, or a name for each")
    given = list(given)
    nodes = int(graph.num_nodes or 0)
    if len(given) != nodes or not given:
        raise BadInput(f"owners names {len(given)} owners for {nodes} nodes: give one a node")
    if all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in given):
        width = len(str(max(given)))
        given = [f"owner-{one:0{width}d}" for one in given]
    if not all(isinstance(one, str) for one in given):
        raise BadInput("owners: give a whole number from 0 for each node, or a name for each")
    names = tuple(sorted(set(given)))
    check_names(dict.fromkeys(names))
    place = {name: number for number, name in enumerate(names)}
    return names, from_assignment(graph, torch.tensor([place[one] for one in given]), len(names))
