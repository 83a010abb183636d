"""Ego-graph tables: one shape for every node, frozen, and the rules R2 and R3 of node-level bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.sample.ego_graphs import drop_repeats, ego_table, level_sizes, levels
from secure_fedgraph.graph.sample.trees import MISSING

GRAPH = citation(nodes=300, classes=4, seed=1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def neighbours(graph: Data) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(int(graph.num_nodes))]
    for source, target in graph.edge_index.t().tolist():
        found[target].add(source)
    return found


def without(graph: Data, node: int) -> Data:
    keep = (graph.edge_index != node).all(0)
    return Data(edge_index=graph.edge_index[:, keep], num_nodes=graph.num_nodes)


@pytest.mark.parametrize("slots", ["sampled", "stable"])
def test_every_row_is_a_tree_of_43_positions(slots: str) -> None:
    table = ego_table(GRAPH, generator=seeded(), slots=slots)
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


def test_sampling_is_uniform_with_replacement() -> None:
    star = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 0]]), num_nodes=4)
    drawn = torch.stack([ego_table(star, (6,), generator=seeded(s))[0, 1:] for s in range(500)])
    counts = torch.bincount(drawn.flatten(), minlength=4)
    # 3000 draws, a third each: standard deviation 25.8
    assert counts[0] == 0 and all(abs(int(n) - 1000) < 5 * 25.8 for n in counts[1:])
    assert any(len(set(row.tolist())) < 3 for row in drawn)


def test_the_generator_decides() -> None:
    first, again, other = (ego_table(GRAPH, generator=seeded(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


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


@pytest.mark.parametrize("node", [0, 7, 150])
def test_taking_a_node_away_changes_no_slot_that_it_did_not_stand_above_or_in(node: int) -> None:
    """R2. The control: under plain sampling slots of others move."""

    def moved(slots: str) -> tuple[int, int]:
        before = ego_table(GRAPH, generator=seeded(), slots=slots).numpy()
        after = ego_table(without(GRAPH, node), generator=seeded(), slots=slots).numpy()
        before, after = (np.delete(t, node, axis=0) for t in (before, after))
        here = before == node
        touched = here.copy()
        for j in range(1, 7):
            touched[:, 6 * j + 1 : 6 * j + 7] |= here[:, j : j + 1]
        return int((before != after).sum()), int(((before != after) & ~touched).sum())

    assert moved("stable")[1] == 0
    assert moved("stable")[0] > 0
    assert moved("sampled")[1] > 0


def test_a_stable_slot_is_a_function_of_the_pair() -> None:
    """A neighbour stands in the same slot in every row that holds the pair."""
    table = ego_table(GRAPH, generator=seeded(), slots="stable").tolist()
    slot_of: dict[tuple[int, int], set[int]] = {}
    for row in table:
        for j in range(7):
            for k, child in enumerate(row[6 * j + 1 : 6 * j + 7]):
                if child != MISSING:
                    slot_of.setdefault((row[j], child), set()).add(k)
    assert len(slot_of) > 300
    assert all(len(slots) == 1 for slots in slot_of.values())


@given(
    st.integers(0, 2**31),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(1, 9),
    st.integers(1, 12),
)
def test_once_keeps_the_first_of_each_and_moves_nothing(
    seed: int, batches: int, n: int, positions: int, nodes: int
) -> None:
    """R3."""
    rows = torch.randint(-1, nodes, (batches, n, positions), generator=seeded(seed))
    kept = drop_repeats(rows)
    assert kept.shape == rows.shape
    assert bool(((kept == rows) | (kept == MISSING)).all())
    for before, after in zip(rows, kept, strict=True):
        left = after[after != MISSING].tolist()
        assert len(left) == len(set(left))
        assert set(left) == set(before[before != MISSING].tolist())
        centres = before[:, 0]
        if len(set(centres.tolist())) == n:
            assert torch.equal(after[:, 0], centres)


@pytest.mark.parametrize("fanout", [(), (0, 6), (6, -1)])
def test_a_fanout_that_is_none_is_refused(fanout: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="fanout is"):
        ego_table(GRAPH, fanout, generator=seeded())


def test_unknown_slots_are_refused() -> None:
    with pytest.raises(BadInput, match="'fixed'"):
        ego_table(GRAPH, generator=seeded(), slots="fixed")
