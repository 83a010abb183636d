"""Mending: numbers stay, links go both ways, and a generated feature reaches its anchor (S6)."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.mending import attach, mend
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.models import GraphSage
from secure_fedgraph.models.parameters import glorot


def path() -> Data:
    """0 - 1 - 2."""
    return Data(
        x=torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]),
        y=torch.tensor([1, 0, 1]),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        train_mask=torch.tensor([True, False, True]),
        node_id=torch.tensor([7, 8, 9]),
    )


def test_by_hand() -> None:
    generated = torch.arange(12.0).view(3, 2, 2) / 10
    made = mend(path(), torch.tensor([2, 0, 1]), generated)
    assert made.x.tolist() == [
        [1, 0], [2, 0], [3, 0],
        *torch.tensor([[0.0, 0.1], [0.2, 0.3], [0.8, 0.9]]).tolist(),
    ]  # fmt: skip
    assert set(map(tuple, made.edge_index.T.tolist())) == {
        (0, 1), (1, 0), (1, 2), (2, 1),
        (3, 0), (0, 3), (4, 0), (0, 4), (5, 2), (2, 5),
    }  # fmt: skip
    assert made.edge_index.shape == (2, 10)
    assert made.y.tolist() == [1, 0, 1, 0, 0, 0]
    assert made.train_mask.tolist() == [True, False, True, False, False, False]
    assert made.node_id.tolist() == [7, 8, 9, -1, -1, -1]


@pytest.mark.parametrize("sampled", [False, True])
def test_a_generated_feature_changes_its_anchors_prediction_s6(sampled: bool) -> None:
    graph = citation(nodes=40)
    width = graph.x.shape[1]
    net = GraphSage(width, 3)
    glorot(net, 0)
    counts = torch.zeros(40, dtype=torch.long)
    counts[11] = 1
    generated = torch.zeros(40, 5, width)
    changed = generated.clone()
    changed[11, 0] = 1.0

    def scores(features: torch.Tensor) -> torch.Tensor:
        made = mend(graph, counts, features)
        with torch.no_grad():
            if not sampled:
                return net(made.x, made.edge_index)
            table = NeighbourTable(made.edge_index, len(made.x))
            tree = table.sample_tree(torch.arange(40), [20, 20], torch.Generator().manual_seed(0))
            return net.forward_tree(made.x, tree)

    moved = (scores(changed) - scores(generated)).abs().amax(1)[:40]
    assert moved[11] > 1e-4
    # and nobody's beyond two links: the new node is one link from node 11
    near = torch.zeros(40, dtype=torch.bool)
    near[11] = True
    near[graph.edge_index[1, graph.edge_index[0] == 11]] = True
    assert not moved[~near].any()
    assert not near.all()


def test_a_slot_beyond_the_count_does_not_matter() -> None:
    generated = torch.zeros(3, 2, 2)
    other = generated.clone()
    other[0, 1], other[1] = 9.0, float("nan")
    counts = torch.tensor([1, 0, 2])
    assert all(torch.equal(a, mend(path(), counts, other)[k]) for k, a in mend(path(), counts, generated))


def test_nothing_missing_is_the_same_graph_and_the_given_one_stays() -> None:
    graph = path()
    for made in (
        mend(graph, torch.zeros(3, dtype=torch.long), torch.zeros(3, 0, 2)),
        mend(graph, torch.zeros(3, dtype=torch.long), torch.zeros(3, 5, 2)),
    ):
        assert all(torch.equal(value, made[key]) for key, value in graph)
    mend(graph, torch.ones(3, dtype=torch.long), torch.zeros(3, 5, 2))
    assert all(torch.equal(value, graph[key]) for key, value in path())


def test_attach_keeps_repeats_of_an_anchor() -> None:
    assert attach(torch.empty(2, 0, dtype=torch.long), 2, torch.tensor([1, 1])).tolist() == [
        [2, 3, 1, 1],
        [1, 1, 2, 3],
    ]


def test_generated_features_that_are_not_finite_are_refused() -> None:
    generated = torch.zeros(3, 1, 2)
    generated[2, 0, 1] = torch.nan
    with pytest.raises(BadInput, match="not finite"):
        mend(path(), torch.ones(3, dtype=torch.long), generated)
