"""Sets of graphs small enough for tests: whether a graph has a triangle is its class."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from secure_fedgraph.graph.kinds import GraphSetDataset

LABELS = 3


def one(number: int, generator: torch.Generator, linked: bool = True) -> Data:
    """A ring of five or six nodes; every second graph has a chord that makes a triangle."""
    nodes, y = 5 + number // 2 % 2, number % 2
    links = [(i, (i + 1) % nodes) for i in range(nodes)] + ([(0, 2)] if y else [])
    both = [pair for a, b in links for pair in ((a, b), (b, a))] if linked else []
    x = torch.eye(LABELS)[torch.randint(LABELS, (nodes,), generator=generator)]
    edge_index = torch.tensor(both, dtype=torch.long).reshape(-1, 2).t()
    return Data(x=x, edge_index=edge_index, y=torch.tensor([y]))


def triangles(graphs: int = 60, seed: int = 0, linked: bool = True) -> GraphSetDataset:
    """That many graphs, half of them with a triangle."""
    generator = torch.Generator().manual_seed(seed)
    found = [one(i, generator, linked) for i in range(graphs)]
    return GraphSetDataset("triangles", found, "made here", "0" * 64, LABELS, 2)
