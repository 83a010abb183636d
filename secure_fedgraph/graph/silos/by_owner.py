"""One graph and who has which of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput, wrong_type
from secure_fedgraph.graph.partition.partition import NodeAssignment, from_assignment
from secure_fedgraph.graph.silos.agreement import check_names


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
