"""Which owner holds which nodes, and what each owner sees of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS, stratified
from secure_fedgraph.graph.partition.communities import assign
from secure_fedgraph.graph.partition.cross_links import note_cross_links
from secure_fedgraph.graph.partition.result import Partition, TestSet, owner_names
from secure_fedgraph.graph.sample.links import EDGE_FIELDS, edge_values, undirected_links
from secure_fedgraph.graph.seeds import sub_seed


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


def subgraphs(
    rule: Callable[..., NodeAssignment], graph: Data, clients: int, seed: int, **settings: Any
) -> Partition:
    """Disjoint induced subgraphs by a rule of :mod:`~secure_fedgraph.graph.partition.partition`.

    Test nodes are the owners' own 20 %, classified on the whole graph with every link (the FedSage paper's
    section 5.1); where the graph has masks, these name the test nodes. Where links are classified, those
    between two owners are nobody's, and the owners' own are split in the same way.

    Args:
        rule: ``(graph, clients, seed, **settings)`` -> who holds which nodes.
        graph: ``x``, ``edge_index``, ``y``; all three masks or none.
        clients: how many owners.
        seed: for the parts and for each owner's split, by sub-seeds.
        settings: of the rule.

    Raises:
        BadInput: where no owner has a test or (without masks) a validation node, and what the rule raises.
    """
    parts = rule(graph, clients, sub_seed(seed, "partition"), **settings)
    return handed_out(graph, parts, owner_names(len(parts.parts)), seed)


def handed_out(graph: Data, parts: NodeAssignment, names: Sequence[str], seed: int) -> Partition:
    """The parts of a graph as their owners' own graphs, and the whole graph as the referee's test.

    Args:
        graph: ``x``, ``edge_index``, ``y``; all three masks or none.
        parts: who holds which nodes.
        names: the owners', in order.
        seed: of each owner's split, by sub-seeds.

    Raises:
        BadInput: where no owner has a test or (without masks) a validation node.
    """
    owners, node_sets, given = [], [], graph.get("train_mask") is not None
    for number, nodes in enumerate(parts.parts):
        own = induced(graph, nodes)
        items = own.get("link_id", nodes)
        masks = (
            tuple(graph[key][items] for key in MASKS)
            if given
            else stratified(own.y, sub_seed(seed, f"split/{number}"))
        )
        own.train_mask, own.val_mask, own.test_mask = masks
        owners.append(own)
        node_sets.append([items[mask] for mask in masks])
    note_cross_links(graph, owners)
    trainings, validations, tests = (
        {n: f[i] for n, f in zip(names, node_sets, strict=True)} for i in range(3)
    )
    for what, nodes_of in (("test", tests), ("validation", validations)):
        if not any(len(nodes) for nodes in nodes_of.values()) and not (given and what == "validation"):
            raise BadInput(
                f"no owner has a {what} node: use fewer than {len(owners)} clients or a larger graph"
            )
    asked = ("edge_label_index",) if graph.get("edge_label") is not None else ()
    carried = {key: graph[key] for key in (*EDGE_FIELDS, *asked) if graph.get(key) is not None}
    pool = Data(x=graph.x, y=graph.y, edge_index=graph.edge_index, **carried)
    facts = {**parts.table(), "sizes": list(parts.sizes)}
    if asked:
        pool.edge_label = graph.edge_label
        facts["missing_answers"] = len(graph.y) - sum(len(own.y) for own in owners)
    pool.train_mask, pool.val_mask, pool.test_mask = (
        _mask(graph, nodes_of) for nodes_of in (trainings, validations, tests)
    )
    inputs = Data(x=graph.x, edge_index=graph.edge_index, num_nodes=int(graph.num_nodes), **carried)
    test_set = TestSet(inputs, graph.y, tests, validations, trainings)
    return Partition(tuple(owners), test_set, facts, pool)


def _mask(graph: Data, nodes: Mapping[str, Tensor]) -> Tensor:
    mask = torch.zeros(len(graph.y), dtype=torch.bool)
    mask[torch.cat(list(nodes.values()))] = True
    return mask
