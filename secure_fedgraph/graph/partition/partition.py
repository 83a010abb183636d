"""Which owner holds which nodes, and what each owner sees of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.partition.communities import assign
from secure_fedgraph.graph.sample.links import edge_values, undirected_links


@dataclass(frozen=True)
class NodeAssignment:
    """Nodes handed out to owners; every node belongs to exactly one.

    Attributes:
        parts: per owner the node indices, ascending.
        missing_links: number of undirected links between two owners, over all owners; no owner sees these.
        sizes: nodes per owner.
        inner_links: undirected links inside each owner; with ``missing_links`` they add up to all links.
    """

    parts: tuple[Tensor, ...]
    missing_links: int
    sizes: tuple[int, ...]
    inner_links: tuple[int, ...]

    def table(self) -> dict[str, float]:
        """The columns of Table 1 of the FedSage paper: mean nodes, mean links and links dropped in total.

        The paper's own rows add up to the 5,429 links of its Cora by ``owners * links + missing_links``
        (3 * 1675 + 403, 5 * 968 + 589, 10 * 450 + 929), so its Delta E is a total, not a mean.
        """
        owners = len(self.parts)
        return {
            "owners": owners,
            "nodes": sum(self.sizes) / owners,
            "links": sum(self.inner_links) / owners,
            "missing_links": self.missing_links,
        }


def from_assignment(graph: Data, owner_of: Tensor, owners: int) -> NodeAssignment:
    """The ``NodeAssignment`` in which node ``v`` belongs to owner ``owner_of[v]``."""
    low, high = owner_of[undirected_links(graph.edge_index)]
    inner = torch.bincount(low[low == high], minlength=owners)
    return NodeAssignment(
        parts=tuple((owner_of == owner).nonzero().flatten() for owner in range(owners)),
        missing_links=int((low != high).sum()),
        sizes=tuple(torch.bincount(owner_of, minlength=owners).tolist()),
        inner_links=tuple(inner.tolist()),
    )


def induced(graph: Data, nodes: Tensor) -> Data:
    """The part of a graph that the owner of ``nodes`` sees: links to other owners are gone.

    Args:
        graph: with ``x``, ``y`` and ``edge_index``.
        nodes: ``[n]`` distinct node indices; the new node ``i`` is ``nodes[i]``.

    Returns:
        ``Data`` with ``x [n, F]``, ``y [n]``, ``edge_index`` numbered from 0, what its edges carry, and
        ``node_id [n]``, the indices in ``graph``. Where links are learned, ``y`` is of those between these
        nodes, with ``edge_label_index``, ``edge_label``, and ``link_id``, their indices in ``graph``.
    """
    place = torch.full((graph.num_nodes,), -1, dtype=torch.long)
    place[nodes] = torch.arange(len(nodes))
    edges = place[graph.edge_index]
    inside = (edges >= 0).all(dim=0)
    if graph.get("edge_label") is None:
        answers = {"y": graph.y[nodes]}
    else:
        ends = place[graph.edge_label_index]
        links = (ends >= 0).all(dim=0).nonzero().flatten()
        label = graph.edge_label[links]
        answers = {"y": label, "edge_label_index": ends[:, links], "edge_label": label, "link_id": links}
    return Data(
        x=graph.x[nodes],
        edge_index=edges[:, inside],
        node_id=nodes.clone(),
        **answers,
        **edge_values(graph, inside),
    )


def random_parts(graph: Data, owners: int, seed: int) -> NodeAssignment:
    """Nodes dealt out uniformly at random; sizes differ by at most one."""
    order = np.random.default_rng(seed).permutation(_check(graph, owners))
    owner_of = np.empty(len(order), dtype=np.int64)
    owner_of[order] = np.arange(len(order)) % owners
    return from_assignment(graph, torch.from_numpy(owner_of), owners)


def louvain(graph: Data, owners: int, seed: int, **settings: Any) -> NodeAssignment:
    """Owners of similar size along the communities of the graph.

    Args:
        graph: with ``edge_index`` and ``y``.
        owners: number of owners, from 1 to the number of nodes.
        seed: the same seed gives the same parts.
        settings: of :func:`~secure_fedgraph.graph.partition.communities.assign`.

    Raises:
        BadInput: for a number of owners that the graph cannot have.
    """
    _check(graph, owners)
    return from_assignment(graph, assign(graph, owners, seed, **settings), owners)


def _check(graph: Data, owners: int) -> int:
    nodes = int(graph.num_nodes or 0)
    if not 1 <= owners <= nodes:
        raise BadInput(f"owners is {owners}, but the graph has {nodes} nodes; give 1 to {nodes} owners.")
    return nodes
