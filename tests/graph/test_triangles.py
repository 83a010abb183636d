"""Pieces with triangles by hand: what they are worth, and what their fingerprints tell apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.graph import triangles
from secure_fedgraph.graph.sample.packing import pack

Links = list[tuple[int, int]]


def graph(*links: tuple[int, int], nodes: int = 0) -> Data:
    """Undirected, each link listed once."""
    ends = torch.tensor(links, dtype=torch.long).reshape(-1, 2).t()
    size = max(nodes, int(ends.max()) + 1 if links else 0)
    return Data(x=torch.ones(size, 1), edge_index=ends, y=torch.tensor([0]))


def strip(length: int, first: int = 0) -> Links:
    """Triangles side by side, ``length`` nodes."""
    near = [(i, i + 1) for i in range(length - 1)] + [(i, i + 2) for i in range(length - 2)]
    return [(a + first, b + first) for a, b in near]


def pieces(*graphs: Data) -> triangles.Pieces:
    return triangles.pieces_with_triangles(pack(graphs))


def test_a_strip_by_hand():
    t, n, m = 28, 30, 57
    pairs = n * (n - 1) / 2
    e = n * (n - 1) * (n - 2) / 6 * m * (m - 1) * (m - 2) / (pairs * (pairs - 1) * (pairs - 2))
    assert pieces(graph(*strip(30))).worth.tolist() == pytest.approx([(t - e - e**0.5) / (t + e)])


@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
def test_a_graph_without_links_has_no_piece_and_a_complete_one_is_worth_nothing(nodes: int):
    assert len(pieces(graph(nodes=nodes)).worth) == 0
    assert pieces(graph(*combinations(range(nodes), 2), nodes=nodes)).worth.sum() == 0


def test_a_graph_is_shared_among_its_pieces_by_triangles():
    alone = pieces(graph(*strip(30)), graph(*strip(20)))
    both = pieces(graph(nodes=2), graph(*strip(30), *strip(20, 40), (100, 101), nodes=105))
    assert both.graph.tolist() == [1, 1]
    np.testing.assert_array_equal(both.fingerprint, alone.fingerprint)
    np.testing.assert_allclose(both.worth, alone.worth * np.array([28, 18]) / 46)


def test_links_that_make_no_triangle_never_make_a_piece_worth_more():
    worth = [pieces(graph(*strip(30), *more)).worth[0] for more in ([], [(0, 15)], [(0, 15), (0, 29)])]
    assert worth[0] > worth[1] > worth[2] > 0


def test_fingerprints_tell_triangles_apart_that_lie_otherwise():
    """Both have nine nodes of four neighbours each, so that neighbours alone cannot tell them apart."""
    rook = [(a, b) for a, b in combinations(range(9), 2) if a // 3 == b // 3 or a % 3 == b % 3]
    ring = [(i, (i + step) % 9) for i in range(9) for step in (1, 2)]
    first, second = pieces(graph(*rook), graph(*ring)).fingerprint
    assert first != second
