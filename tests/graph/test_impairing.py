"""Hiding nodes: who is hidden, that everything stays with its node, and the truth about the hidden."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.mending import impair


def owner(nodes: int = 60) -> Data:
    graph = citation(nodes=nodes)
    graph.train_mask = torch.arange(nodes) % 3 == 0
    graph.node_id = torch.arange(nodes) + 1000
    return graph


def test_a_star_by_hand() -> None:
    # 0 - 1, 0 - 2, 0 - 3; one of four is hidden
    links = torch.tensor([[0, 1, 0, 2, 0, 3], [1, 0, 2, 0, 3, 0]])
    graph = Data(x=torch.arange(4.0).unsqueeze(1), y=torch.tensor([5, 6, 7, 8]), edge_index=links)
    by_hidden = {int(made.hidden): made for made in (impair(graph, 0.25, seed) for seed in range(40))}
    assert sorted(by_hidden) == [0, 1, 2, 3]
    hub, leaf = by_hidden[0], by_hidden[2]
    assert hub.kept.tolist() == [1, 2, 3]
    assert hub.graph.edge_index.numel() == 0
    assert hub.counts.tolist() == [1, 1, 1]
    assert hub.neighbours.tolist() == [[0], [0], [0]]
    assert leaf.kept.tolist() == [0, 1, 3]
    assert leaf.graph.y.tolist() == [5, 6, 8]  # the released code picked 5, 6, 7
    assert leaf.graph.edge_index.tolist() == [[0, 1, 0, 2], [1, 0, 2, 0]]
    assert leaf.counts.tolist() == [1, 0, 0]
    assert leaf.neighbours.tolist() == [[0], [-1], [-1]]
    assert leaf.hidden_x.tolist() == [[2.0]]


def test_everything_stays_with_its_node_and_the_truth_is_that_of_a_loop() -> None:
    graph = owner()
    made = impair(graph, 0.3, 4)
    assert len(made.hidden) == 18
    assert torch.equal(torch.cat([made.kept, made.hidden]).sort().values, torch.arange(60))
    assert torch.equal(made.graph.node_id, made.kept + 1000)
    for key in ("x", "y", "train_mask"):
        assert torch.equal(made.graph[key], graph[key][made.kept]), key
    assert torch.equal(made.hidden_x, graph.x[made.hidden])
    pairs = set(map(tuple, graph.edge_index.T.tolist()))
    kept, hidden = made.kept.tolist(), set(made.hidden.tolist())
    for i, v in enumerate(kept):
        true = sorted(u for (w, u) in pairs if w == v and u in hidden)
        row = made.neighbours[i]
        assert made.hidden[row[row >= 0]].tolist() == true
        assert int(made.counts[i]) == len(true)
    inner = {(kept[a], kept[b]) for a, b in made.graph.edge_index.T.tolist()}
    assert inner == {(a, b) for a, b in pairs if a not in hidden and b not in hidden}
    assert made.counts.sum() > 0


def test_a_link_counts_once_whatever_its_directions_and_loops_do_not() -> None:
    links = torch.tensor([[0, 0, 1, 0, 1], [1, 1, 0, 0, 1]])
    made = impair(Data(x=torch.ones(2, 1), y=torch.zeros(2).long(), edge_index=links), 0.5, 0)
    assert made.counts.tolist() == [1]
    one_way = Data(x=torch.ones(2, 1), y=torch.zeros(2).long(), edge_index=torch.tensor([[0], [1]]))
    assert [impair(one_way, 0.5, seed).counts.tolist() for seed in range(4)] == [[1]] * 4


def test_the_seed_decides_and_the_given_graph_and_global_state_stay() -> None:
    graph, state = owner(), torch.get_rng_state()
    before = graph.clone()
    assert torch.equal(impair(graph, 0.2, 1).hidden, impair(graph, 0.2, 1).hidden)
    assert not torch.equal(impair(graph, 0.2, 1).hidden, impair(graph, 0.2, 2).hidden)
    assert all(torch.equal(before[key], value) for key, value in graph)
    assert torch.equal(state, torch.get_rng_state())


def test_hidden_nodes_without_neighbours() -> None:
    graph = Data(x=torch.ones(4, 2), y=torch.zeros(4).long(), edge_index=torch.empty(2, 0).long())
    made = impair(graph, 0.5, 0)
    assert made.counts.tolist() == [0, 0]
    assert made.neighbours.tolist() == [[-1], [-1]]


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(BadInput, match="hidden share is"):
        impair(owner(), share, 0)


def test_a_share_that_hides_or_leaves_nobody_is_refused() -> None:
    with pytest.raises(BadInput, match=r"0\.001 of 60 nodes hides none"):
        impair(owner(), 0.001, 0)
    with pytest.raises(BadInput, match=r"0\.999 of 60 nodes leaves none"):
        impair(owner(), 0.999, 0)
