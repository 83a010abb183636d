"""Stand-ins have an owner's public facts, and nothing of its data."""

from __future__ import annotations

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.graph.stand_in import stand_in

FEDERATIONS = {
    "parts": lambda: sfg.federate("synthetic-citation", nodes=90, features=16),
    "graph sets": lambda: sfg.federate("synthetic-molecules", partition="dirichlet", graphs=60),
}


@pytest.mark.parametrize("kind", FEDERATIONS)
def test_other_data_of_the_same_owner_give_the_same_stand_in(kind: str):
    federation = FEDERATIONS[kind]()
    for graph in federation.owners.values():
        other = graph.clone()
        other.y = (graph.y + 1) % federation.schema.classes
        other.x, other.edge_index = torch.zeros_like(graph.x), graph.edge_index[:, :0]
        other.train_mask, other.val_mask = graph.val_mask, graph.train_mask
        if "edge_attr" in graph:
            other.edge_attr = graph.edge_attr[:0]
        one, again = (stand_in(found, federation.schema) for found in (graph, other))
        assert list(one.keys()) == list(again.keys())
        assert all(torch.equal(torch.as_tensor(one[k]), torch.as_tensor(again[k])) for k in one.keys())  # noqa: SIM118
        assert one.num_nodes == graph.num_nodes and one.x.shape == graph.x.shape
        assert one.y.shape == graph.y.shape and one.validate()
