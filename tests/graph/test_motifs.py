"""Bonds and rings by hand, TF-IDF by hand, and the lists that travel."""

from __future__ import annotations

import math

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph import motifs
from secure_fedgraph.graph.sample.packing import pack


def graph(labels: list[int], links: list[tuple[int, int]], classes: int = 4, kinds: list[int] | None = None):
    both = [pair for a, b in links for pair in ((a, b), (b, a))]
    edge_index = torch.tensor(both, dtype=torch.long).reshape(-1, 2).t()
    found = Data(x=torch.eye(classes)[labels], edge_index=edge_index, y=torch.tensor([0]))
    if kinds is not None:
        found.edge_attr = torch.eye(3)[[k for kind in kinds for k in (kind, kind)]]
    return found


def found_in(*graphs: Data, rings: int = 4) -> motifs.Motifs:
    return motifs.motifs_of(pack(graphs), torch.arange(len(graphs)), rings)


def named(found: motifs.Motifs, graph_number: int = 0) -> dict[tuple[int, ...], int]:
    here = found.graph == graph_number
    return {
        tuple(n for n in found.codes[m].tolist() if n >= 0): c
        for m, c in zip(found.motif[here].tolist(), found.count[here].tolist(), strict=True)
    }


class TestMotifs:
    def test_a_triangle_with_a_tail(self):
        # triangle of labels 2, 0, 1 and a tail from label 1 to label 3
        found = found_in(graph([2, 0, 1, 3], [(0, 1), (1, 2), (0, 2), (2, 3)]))
        assert named(found) == {(3, 0, 1, 2): 1, (2, 1, 3, 0): 1}

    def test_a_square_and_what_a_chord_makes_of_it(self):
        square = [(0, 1), (1, 2), (2, 3), (3, 0)]
        assert named(found_in(graph([0, 1, 0, 1], square))) == {(4, 0, 1, 0, 1): 1}
        # with a chord there are two triangles, and no square: its diagonal is linked
        assert named(found_in(graph([0, 1, 0, 1], [*square, (0, 2)]))) == {(3, 0, 0, 1): 2}

    def test_a_pentagon_is_five_bonds_where_rings_have_four(self):
        five = [(i, (i + 1) % 5) for i in range(5)]
        assert named(found_in(graph([0] * 5, five))) == {(2, 0, 0, 0): 5}
        assert named(found_in(graph([0] * 5, five), rings=5)) == {(5, 0, 0, 0, 0, 0): 1}

    def test_a_graph_without_links_has_none_and_still_counts(self):
        found = found_in(graph([0, 1], []), graph([0, 1], [(0, 1)]))
        assert found.graphs == 2
        assert named(found, 0) == {}
        assert found.graph_counts.tolist() == [1]
        nothing = found_in(graph([0, 1], []))
        assert nothing.codes.shape == (0, 5)
        assert motifs.most_distinctive(nothing, 0.85).tolist() == []

    def test_kinds_of_links_are_part_of_a_bond(self):
        found = found_in(graph([0, 1, 0], [(0, 1), (1, 2)], kinds=[0, 2]))
        assert named(found) == {(2, 0, 1, 0): 1, (2, 0, 1, 2): 1}

    def test_only_the_chosen_graphs_are_read(self):
        packed = pack([graph([0, 0], [(0, 1)]), graph([1, 1], [(0, 1)]), graph([2, 2], [(0, 1)])])
        found = motifs.motifs_of(packed, torch.tensor([2, 0]))
        assert named(found, 0) == {(2, 2, 2, 0): 1}
        assert named(found, 1) == {(2, 0, 0, 0): 1}

    @pytest.mark.parametrize(("seed", "longest"), [(0, 3), (1, 4), (2, 5), (3, 6)])
    def test_rings_are_networkx_chordless_cycles(self, seed, longest):
        drawn = nx.gnm_random_graph(14, 32, seed=seed)
        ours = {frozenset(ring) for ring in motifs.rings_of([set(drawn[n]) for n in drawn], longest)}
        theirs = [frozenset(ring) for ring in nx.chordless_cycles(drawn, length_bound=longest)]
        assert ours == set(theirs)
        assert sum(1 for _ in motifs.rings_of([set(drawn[n]) for n in drawn], longest)) == len(theirs)

    def test_rings_of_two_are_none(self):
        with pytest.raises(BadInput, match="3 or more"):
            found_in(graph([0, 1], [(0, 1)]), rings=2)


class TestTfIdf:
    def test_scores_by_hand(self):
        # motif a = bond 0-0: 2 + 1 + 1 bonds in three graphs of three; b = bond 0-1: 3 bonds in one graph
        found = found_in(
            graph([0, 0, 0], [(0, 1), (1, 2)]),
            graph([0, 0], [(0, 1)]),
            graph([0, 0, 1, 1, 1], [(0, 1), (0, 2), (0, 3), (0, 4)]),
        )
        assert found.graph_counts.tolist() == [3, 1]
        assert found.mean_count().tolist() == pytest.approx([4 / 3, 3])
        assert motifs.idf(found.graph_counts, 3).tolist() == pytest.approx([1, math.log(4 / 2) + 1])
        assert motifs.most_distinctive(found, 0.5).tolist() == [1]
        assert motifs.most_distinctive(found, 1.0).tolist() == [0, 1]
        assert motifs.most_distinctive(found, 1.0, support=2).tolist() == [0]
        # an idf that makes the common one rare turns the choice
        assert motifs.most_distinctive(found, 0.5, rarity=torch.tensor([9.0, 1.0])).tolist() == [0]

    def test_at_least_one_is_kept_and_the_rest_is_rounded_down(self):
        found = found_in(*(graph([i, i], [(0, 1)]) for i in range(3)))
        assert len(motifs.most_distinctive(found, 0.01)) == 1
        assert len(motifs.most_distinctive(found, 0.85)) == 2


class TestVocabularies:
    @pytest.mark.parametrize(("labels", "rings"), [(1, 3), (2, 4), (3, 4), (3, 5), (2, 6)])
    def test_how_many_there_can_be(self, labels, rings):
        assert motifs.possible(labels, rings) == len(motifs._every(labels, rings))

    def test_every_motif_of_some_graphs_is_in_the_public_list(self):
        everywhere = motifs.every_motif(4)
        found = found_in(graph([2, 0, 1, 3], [(0, 1), (1, 2), (0, 2), (2, 3)]))
        at = motifs.places(found.codes, everywhere)
        assert bool((at >= 0).all())
        assert torch.equal(everywhere[at], found.codes)
        assert motifs.check_codes(everywhere.float(), 4, 4) == ""

    def test_a_list_that_would_be_too_long_is_refused(self):
        with pytest.raises(BadInput, match=r"at most 4096; use training.vocabulary=exchanged"):
            motifs.every_motif(89)

    @pytest.mark.parametrize(
        ("rows", "wrong"),
        [
            ([[2, 0, 1, 0]], "rows of 5"),
            ([[2, 0, 1.5, 0, -1]], "not whole"),
            ([[2, 0, 1, 0, -1], [2, 0, 1, 0, -1]], "twice"),
            ([[2, 1, 0, 0, -1]], "canonical"),  # labels not sorted
            ([[3, 1, 0, 2, -1]], "canonical"),  # a rotation
            ([[3, 0, 2, 1, -1]], "canonical"),  # a reflection
            ([[3, 0, 1, 4, -1]], "canonical"),  # there is no label 4
            ([[5, 0, 0, 0, 0]], "canonical"),
            ([[3, 0, 1, 2, 0]], "canonical"),  # no room is used beyond the ring
            ([[2, 0, 1, -1, -1]], "canonical"),  # a bond has a kind
            ([[float("nan")] * 5], "finite"),
        ],
    )
    def test_codes_that_are_none_are_named(self, rows, wrong):
        assert wrong in motifs.check_codes(torch.tensor(rows), 4, 4)

    def test_codes_that_are_some(self):
        rows = torch.tensor([[2, 0, 1, 0, -1], [3, 0, 1, 2, -1], [4, 0, 1, 0, 1]])
        assert motifs.check_codes(rows, 4, 4) == ""
        assert motifs.check_codes(torch.zeros(0, 5), 4, 4) == ""
        assert motifs.places(rows, rows.flip(0)).tolist() == [2, 1, 0]
