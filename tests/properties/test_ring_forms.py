"""Motifs do not depend on how nodes are numbered, nor rings on where they begin or which way they go."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from secure_fedgraph.graph.motifs import motifs_of, ring_form
from secure_fedgraph.graph.sample.packing import pack

LABELS = 3


@given(st.lists(st.integers(0, LABELS), min_size=3, max_size=8), st.integers(0, 20), st.booleans())
def test_a_rings_form_is_the_same_from_everywhere(labels, turn, reflect):
    turn %= len(labels)
    seen = labels[turn:] + labels[:turn]
    assert ring_form(tuple(labels)) == ring_form(tuple(seen[::-1] if reflect else seen))


@given(st.lists(st.integers(0, LABELS), min_size=3, max_size=8))
def test_a_form_is_one_of_the_rings_own_sequences(labels):
    form = ring_form(tuple(labels))
    turned = [tuple(labels[i:] + labels[:i]) for i in range(len(labels))]
    assert form in turned + [one[::-1] for one in turned]
    assert all(form <= other for one in turned for other in (one, one[::-1]))


@st.composite
def graphs(draw):
    nodes = draw(st.integers(2, 9))
    pairs = [(a, b) for a in range(nodes) for b in range(a)]
    links = draw(st.lists(st.sampled_from(pairs), unique=True))
    labels = draw(st.lists(st.integers(0, LABELS - 1), min_size=nodes, max_size=nodes))
    return labels, links, draw(st.permutations(range(nodes)))


def made(labels, links):
    both = torch.tensor([p for a, b in links for p in ((a, b), (b, a))], dtype=torch.long).reshape(-1, 2).t()
    return Data(x=torch.eye(LABELS)[labels], edge_index=both, y=torch.tensor([0]))


@given(graphs(), st.integers(3, 6))
def test_renumbering_a_graph_changes_no_motif(case, rings):
    labels, links, order = case
    renamed = [0] * len(labels)
    for old, new in enumerate(order):
        renamed[new] = labels[old]
    other = made(renamed, [(order[a], order[b]) for a, b in links])
    found = motifs_of(pack([made(labels, links), other]), torch.arange(2), rings)
    one, two = (
        [(found.motif[i].item(), found.count[i].item()) for i in (found.graph == g).nonzero().flatten()]
        for g in (0, 1)
    )
    assert one == two


@given(graphs(), st.integers(3, 6))
def test_every_link_is_a_bond_or_lies_on_a_ring(case, rings):
    labels, links, _ = case
    found = motifs_of(pack([made(labels, links)]), torch.tensor([0]), rings)
    sizes = found.codes[found.motif, 0]
    bonds = int(found.count[sizes == 2].sum())
    assert bonds <= len(links)
    assert bool((found.count > 0).all())
    assert (bonds == len(links)) == (not bool((sizes > 2).any()))
