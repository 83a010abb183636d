"""Owners of disjoint parts of one graph, who lose the links between them and test on the whole graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS, stratified
from secure_fedgraph.graph.partition.cross_links import note_cross_links
from secure_fedgraph.graph.partition.partition import NodeAssignment, induced
from secure_fedgraph.graph.partition.result import Partition, TestSet, owner_names
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.graph.seeds import sub_seed


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
