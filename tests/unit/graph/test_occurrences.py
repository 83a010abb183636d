"""Frozen tables: capped both ways, and what zeroing a node out can change."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.occurrences import capped_neighbours, occurrences, trees


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(0, 200), st.integers(1, 4), st.integers(1, 2))
def test_nobody_stands_in_more_trees_than_accounted(seed, nodes, edges, most, depth):
    links = torch.randint(nodes, (2, edges), generator=generator(seed))
    links[0, : edges // 2] = 0  # a hub that everybody knows
    table = capped_neighbours(links, nodes, most, generator(seed))
    assert table.shape == (nodes, most)
    known = {tuple(link) for link in links.T.tolist()}
    for node, row in enumerate(table.tolist()):
        there = [n for n in row if n >= 0]
        assert len(set(there)) == len(there) and node not in there
        assert all((n, node) in known for n in there)
    assert int(torch.bincount(table[table >= 0], minlength=nodes).max()) <= most
    rows = trees(table, torch.arange(nodes), depth)
    in_trees = torch.stack([(rows == node).any(1).sum() for node in range(nodes)])
    assert int(in_trees.max()) <= occurrences(most, depth)


def test_the_bound_is_reached():
    # a ring, known both ways: every node is in its own tree, two neighbours' and two of theirs
    ring = torch.tensor([[i, (i + 1) % 9] for i in range(9)] + [[(i + 1) % 9, i] for i in range(9)]).T
    rows = trees(capped_neighbours(ring, 9, 2, generator()), torch.arange(9), 2)
    assert (rows == 4).any(1).sum() == 5
    assert occurrences(2, 2) == 7  # 1 + 2 + 4; two of the four are the node's own tree again


def test_positions_are_those_of_a_tree():
    table = torch.tensor([[1, 2], [0, -1], [-1, -1]])
    assert trees(table, torch.tensor([0]), 2).tolist() == [[0, 1, 2, 0, -1, -1, -1]]


def test_none_are_no_neighbours():
    with pytest.raises(BadInput, match="0 neighbours a node: give 1 or more"):
        capped_neighbours(torch.empty(2, 0, dtype=torch.long), 3, 0, generator())
