"""Ego-graph tables: one shape for every node, frozen, and the rules R2 and R3 of node-level bounds."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.sample.ego_graphs import ego_table, level_sizes, levels
from secure_fedgraph.graph.sample.trees import MISSING

GRAPH = citation(nodes=300, classes=4, seed=1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def neighbours(graph: Data) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(int(graph.num_nodes))]
    for source, target in graph.edge_index.t().tolist():
        found[target].add(source)
    return found


def test_every_row_is_a_tree_of_43_positions() -> None:
    table = ego_table(GRAPH, generator=seeded())
    assert table.shape == (300, 43)
    assert table[:, 0].tolist() == list(range(300))
    of = neighbours(GRAPH)
    for row in table.tolist():
        for j in range(7):
            for child in row[6 * j + 1 : 6 * j + 7]:
                assert child == MISSING or child in of[row[j]]
                assert not (child != MISSING and row[j] == MISSING)


def test_only_isolated_nodes_leave_sampled_slots_empty() -> None:
    graph = Data(edge_index=torch.tensor([[1, 0], [0, 1]]), num_nodes=3)
    table = ego_table(graph, (2, 2), generator=seeded())
    assert table.tolist() == [[0, 1, 1, 0, 0, 0, 0], [1, 0, 0, 1, 1, 1, 1], [2, -1, -1, -1, -1, -1, -1]]


def test_a_row_splits_into_levels_whose_last_dimension_are_siblings() -> None:
    table = ego_table(GRAPH, (3, 2), generator=seeded())
    assert level_sizes((3, 2)) == (1, 3, 6)
    centre, first, second = levels(table[:5], (3, 2))
    assert (centre.shape, first.shape, second.shape) == ((5,), (5, 3), (5, 3, 2))
    of = neighbours(GRAPH)
    for i in range(5):
        for j in range(3):
            assert {int(first[i, j])} <= of[int(centre[i])]
            assert set(second[i, j].tolist()) <= of[int(first[i, j])]


@pytest.mark.parametrize("fanout", [(), (0, 6), (6, -1)])
def test_a_fanout_that_is_none_is_refused(fanout: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="fanout is"):
        ego_table(GRAPH, fanout, generator=seeded())
