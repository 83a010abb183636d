from __future__ import annotations

import torch

from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.sample.trees import NeighbourTable

# 0 <- 1, 0 <- 2, 0 <- 3, 1 <- 0; node 4 alone, nodes 2 and 3 only send
EDGES = torch.tensor([[1, 2, 3, 0], [0, 0, 0, 1]])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_neighbours_are_the_sources_of_incoming_edges() -> None:
    table = NeighbourTable(EDGES, 5)
    assert [table.neighbours(node).tolist() for node in range(5)] == [[1, 2, 3], [0], [], [], []]


def test_only_neighbours_are_sampled_and_isolated_nodes_give_minus_one() -> None:
    table = NeighbourTable(EDGES, 5)
    drawn = table.sample(torch.tensor([0, 1, 4, -1]), 50, generator())
    assert drawn.shape == (4, 50)
    assert set(drawn[0].tolist()) == {1, 2, 3}
    assert set(drawn[1].tolist()) == {0}
    assert set(drawn[2:].flatten().tolist()) == {-1}


def test_sampling_is_uniform_and_with_replacement() -> None:
    drawn = NeighbourTable(EDGES, 5).sample(torch.tensor([0]), 30_000, generator())
    share = torch.bincount(drawn.flatten(), minlength=4)[1:] / 30_000
    assert torch.allclose(share, torch.full((3,), 1 / 3), atol=0.015)


def test_every_neighbour_of_a_hub_is_reached() -> None:
    leaves = torch.arange(1, 2001)
    table = NeighbourTable(torch.stack([leaves, torch.zeros_like(leaves)]), 2001)
    assert table.sample(torch.tensor([0]), 60_000, generator()).unique().numel() == 2000


def test_the_seed_decides_and_the_edge_order_does_not() -> None:
    graph = citation(nodes=200)
    nodes = torch.arange(200)
    shuffled = graph.edge_index[:, torch.randperm(graph.edge_index.shape[1], generator=generator(3))]
    first, second = NeighbourTable(graph.edge_index, 200), NeighbourTable(shuffled, 200)
    assert torch.equal(first.sample(nodes, 5, generator(1)), second.sample(nodes, 5, generator(1)))
    assert not torch.equal(first.sample(nodes, 5, generator(1)), first.sample(nodes, 5, generator(2)))


def test_tree_has_one_level_per_fanout_and_children_of_nobody_are_nobody() -> None:
    tree = NeighbourTable(EDGES, 5).sample_tree(torch.tensor([0, 4]), [4, 3], generator())
    assert [tuple(level.shape) for level in tree] == [(2,), (2, 4), (2, 4, 3)]
    parent, child = tree[1].unsqueeze(-1).expand(-1, -1, 3), tree[2]
    assert bool((child[parent == -1] == -1).all())
    assert bool((child[parent == 1] == 0).all())
    assert bool((child[(parent == 2) | (parent == 3)] == -1).all())


def test_mean_matrix_averages_over_all_neighbours() -> None:
    x = torch.tensor([[8.0], [1.0], [2.0], [6.0], [9.0]])
    mean = NeighbourTable(EDGES, 5).mean_matrix()
    assert (mean @ x).flatten().tolist() == [3.0, 8.0, 0.0, 0.0, 0.0]


def test_mean_matrix_is_the_limit_of_sampling() -> None:
    graph = citation(nodes=100)
    table = NeighbourTable(graph.edge_index, 100)
    drawn = table.sample(torch.arange(100), 4000, generator())
    rows = torch.where((drawn >= 0).unsqueeze(-1), graph.x[drawn.clamp(min=0)], 0.0)
    assert torch.allclose(table.mean_matrix() @ graph.x, rows.mean(dim=1), atol=0.05)


def test_a_graph_without_edges() -> None:
    table = NeighbourTable(torch.empty(2, 0, dtype=torch.long), 3)
    assert table.sample(torch.arange(3), 2, generator()).tolist() == [[-1, -1]] * 3
    assert (table.mean_matrix() @ torch.ones(3, 2)).abs().sum() == 0
