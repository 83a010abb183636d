"""Sampled neighbours: capped both ways, and what the real removal of a node changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.occurrences import (
    Priorities,
    capped_neighbours,
    largest_crowd,
    occurrences,
    trees,
)
from secure_fedgraph.privacy.link_priorities import link_priorities


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def keyed(seed: int = 0) -> Priorities:
    key = torch.randint(256, (32,), generator=generator(seed), dtype=torch.uint8)
    return lambda links: link_priorities(key, links)


def hubs(seed: int, nodes: int, edges: int) -> torch.Tensor:
    """Links in any direction, and many with two hubs: one that is a source, one that is a target."""
    links = torch.randint(nodes, (2, edges), generator=generator(seed))
    links[0, : edges // 3] = 0
    links[1, edges // 3 : edges // 2] = 1 % nodes
    return links


def without(links: torch.Tensor, node: int) -> torch.Tensor:
    return links[:, (links != node).all(0)]


def changed_trees(
    links: torch.Tensor, nodes: int, most: int, depth: int, places: int, rows: torch.Tensor, removed: int
) -> int:
    def sampled(edges: torch.Tensor) -> torch.Tensor:
        table = capped_neighbours(edges, nodes, most, keyed(), places, rows if depth == 1 else None)
        return trees(table, rows.nonzero().flatten(), depth)

    return int((sampled(links) != sampled(without(links, removed))).any(1).sum())


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 30),
    st.integers(0, 200),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(1, 5),
)
def test_nobody_stands_in_more_trees_than_accounted(seed, nodes, edges, most, depth, places):
    links = hubs(seed, nodes, edges)
    table = capped_neighbours(links, nodes, most, keyed(seed), places)
    assert table.shape == (nodes, most)
    known = {tuple(link) for link in links.T.tolist()}
    for node, row in enumerate(table.tolist()):
        there = [n for n in row if n >= 0]
        assert len(set(there)) == len(there) and node not in there
        assert all((n, node) in known for n in there)
    assert int(torch.bincount(table[table >= 0], minlength=nodes).max()) <= places
    rows = trees(table, torch.arange(nodes), depth)
    in_trees = torch.stack([(rows == node).any(1).sum() for node in range(nodes)])
    assert int(in_trees.max()) <= occurrences(places, depth)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 40),
    st.integers(0, 300),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 6),
)
def test_a_nodes_removal_with_its_links_changes_no_more_trees_than_accounted(
    seed, nodes, edges, most, depth, places
):
    links = hubs(seed, nodes, edges)
    rows = torch.rand(nodes, generator=generator(seed + 1)) < 0.7
    crowded = largest_crowd(links, nodes, places, rows if depth == 1 else None)
    bound = occurrences(places, depth, crowded)
    for removed in range(min(nodes, 8)):
        assert changed_trees(links, nodes, most, depth, places, rows, removed) <= bound


def test_the_crowd_is_reached():
    """Node 0 asks eight others, each of which has one place and gives it to another once 0 is gone."""
    askers, others = torch.arange(1, 9), torch.arange(9, 17)
    links = torch.cat(
        [torch.stack([askers, torch.zeros(8, dtype=torch.long)]), torch.stack([askers, others])], 1
    )

    def first_to_the_hub(pairs: torch.Tensor) -> torch.Tensor:
        return pairs[1]

    before, after = (capped_neighbours(e, 17, 8, first_to_the_hub, 1) for e in (links, without(links, 0)))
    assert largest_crowd(links, 17, 1) == 8 and largest_crowd(links, 17, 2) == 0
    # its own tree, and one of each of the eight; it has no place itself, so one less than the bound
    assert int((trees(before, torch.arange(17), 1) != trees(after, torch.arange(17), 1)).any(1).sum()) == 9
    assert occurrences(1, 1, 8) == 10


def test_a_hub_that_many_ask_for_takes_nobodys_row():
    """Node 0 is the first choice of ten rows and has one place: its removal changes one row."""
    asking, others = torch.arange(1, 11), torch.arange(11, 21)
    links = torch.cat(
        [torch.stack([torch.zeros(10, dtype=torch.long), asking]), torch.stack([others, asking])], 1
    )
    assert occurrences(1, 1, largest_crowd(links, 21, 1)) == 3

    def the_hub_first(pairs: torch.Tensor) -> torch.Tensor:
        return pairs[0]

    before, after = (capped_neighbours(e, 21, 1, the_hub_first, 1) for e in (links, without(links, 0)))
    assert int((before != after).any(1).sum()) == 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(0, 200), st.integers(1, 5))
def test_a_removal_never_makes_a_graph_that_is_refused(seed, nodes, edges, places):
    links = hubs(seed, nodes, edges)
    degree = int(torch.bincount(links.unique(dim=1)[1], minlength=nodes).max())
    assert largest_crowd(without(links, 0), nodes, places) <= largest_crowd(links, nodes, places) <= degree


def test_the_bound_is_reached():
    # a ring, known both ways: every node is in its own tree, two neighbours' and two of theirs
    ring = torch.tensor([[i, (i + 1) % 9] for i in range(9)] + [[(i + 1) % 9, i] for i in range(9)]).T
    rows = trees(capped_neighbours(ring, 9, 2, keyed()), torch.arange(9), 2)
    assert (rows == 4).any(1).sum() == 5
    assert occurrences(2, 2) == 7  # 1 + 2 + 4; two of the four are the node's own tree again


def test_a_link_has_the_same_priority_whatever_other_links_there_are():
    links = hubs(3, 20, 100)
    some = links[:, ::3]
    assert torch.equal(keyed()(links)[::3], keyed()(some))
    assert not torch.equal(keyed()(links), keyed(1)(links))
    assert keyed()(links[:, :0]).shape == (0,)


def test_rows_that_nobody_needs_take_nobodys_place():
    star = torch.tensor([[0, 0, 0], [1, 2, 3]])
    wanted = torch.tensor([False, False, False, True])
    table = capped_neighbours(star, 4, 1, lambda pairs: pairs[1], 1, wanted)
    assert table[:, 0].tolist() == [-1, -1, -1, 0]


def test_positions_are_those_of_a_tree():
    table = torch.tensor([[1, 2], [0, -1], [-1, -1]])
    assert trees(table, torch.tensor([0]), 2).tolist() == [[0, 1, 2, 0, -1, -1, -1]]


def test_none_are_no_neighbours():
    with pytest.raises(BadInput, match="0 neighbours a node: give 1 or more"):
        capped_neighbours(torch.empty(2, 0, dtype=torch.long), 3, 0, keyed())
