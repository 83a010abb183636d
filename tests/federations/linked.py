"""Federations whose items are links: small graphs in which nodes of one kind are linked with each other."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.evaluation import Evaluator
from secure_fedgraph.federation import with_links_as_items
from secure_fedgraph.graph.schema import NO_EDGE_ATTR, Schema, Task
from secure_fedgraph.graph.silos.rows import no_test_set

NODES, LINKS, FEATURES = 40, 160, 6


def graph(seed: int = 0, task: str = Task.LINKS, directed: bool = False, features: int = FEATURES) -> Data:
    """Nodes of three kinds; four of five links are between nodes of one kind, which is a link's class."""
    random = torch.Generator().manual_seed(seed)
    kind = torch.randint(3, (NODES,), generator=random)
    x = torch.eye(features)[kind] + 0.3 * torch.randn(NODES, features, generator=random)
    pairs = torch.randint(NODES, (2, 5 * LINKS), generator=random)
    alike = (kind[pairs[0]] == kind[pairs[1]]).float()
    taken = torch.rand(pairs.shape[1], generator=random) < torch.where(alike > 0, 1.0, 0.1)
    pairs = pairs[:, (pairs[0] != pairs[1]) & taken]
    if not directed:
        pairs = torch.stack([pairs.amin(0), pairs.amax(0)])
    pairs = torch.unique(pairs, dim=1)
    pairs = pairs[:, torch.randperm(pairs.shape[1], generator=random)[:LINKS]]
    made = Data(x=x, edge_index=pairs if directed else torch.cat([pairs, pairs.flip(0)], dim=1))
    if task == Task.LINK_CLASSES:
        made.edge_attr = torch.randn(made.edge_index.shape[1], 2, generator=random)
        made.edge_label_index = pairs
        made.edge_label = (kind[pairs[0]] == kind[pairs[1]]).long()
    return made


def schema(task: str, features: int = FEATURES) -> Schema:
    """Of such graphs, before their links are items."""
    columns = 2 if task == Task.LINK_CLASSES else NO_EDGE_ATTR
    return Schema(features, 2, edge_attr=columns, task=task)


def federation(task: str = Task.LINKS, directed: bool = False, features: int = FEATURES) -> sfg.Federation:
    """Three owners of such graphs."""
    owners = {f"owner-{number}": graph(number, task, directed, features) for number in range(3)}
    facts = {"data": "links", "partition": {}, "silos": list(owners)}
    made = sfg.Federation(schema(task, features), Evaluator(no_test_set()), facts, owners)
    return with_links_as_items(made, 0)
