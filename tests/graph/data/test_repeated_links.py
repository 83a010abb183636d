"""Links that stand more than once in an owner's graph."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.own_graph import checked_graph


def repeated(**fields: torch.Tensor) -> Data:
    return Data(
        x=torch.eye(4),
        y=torch.tensor([0, 1, 0, 1]),
        edge_index=torch.tensor([[2, 0, 1, 0, 3], [3, 1, 0, 1, 2]]),
        **fields,
    )


def test_a_repeated_link_is_used_once_and_a_note_counts_it() -> None:
    graph, _, notes = checked_graph(repeated(edge_weight=torch.tensor([5.0, 1, 1, 1, 5])), "bank", 0)
    assert graph.edge_index.tolist() == [[2, 0, 1, 3], [3, 1, 0, 2]]  # each at its first place
    assert graph.edge_weight.tolist() == [5, 1, 1, 5]
    assert notes == ["1 links stand more than once and are used once"]


@pytest.mark.parametrize("key", ["edge_weight", "edge_attr"])
def test_a_repeated_link_with_other_values_is_refused(key: str) -> None:
    with pytest.raises(BadInput, match=rf"bank: the link 0 -> 1 stands twice with different {key}.*edge 3"):
        checked_graph(repeated(**{key: torch.tensor([5.0, 1, 1, 2, 5])}), "bank", 0)


def test_fedego_trains_on_a_graph_with_repeated_links() -> None:
    # its sampler's sparse matrix has each link once, and torch refused the graph in round 1
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(0, 40, (2, 90), generator=draw)
    data = Data(x=torch.rand(40, 6, generator=draw), y=torch.arange(40) % 2, edge_index=ends.repeat(1, 2))
    with pytest.warns(sfg.DataWarning):
        banks = sfg.federate({"a": data, "b": data.clone(), "c": data.clone()})
    assert sfg.train(sfg.FedEgo(batch=8), banks, "plaintext", rounds=1).accuracy["local"] >= 0
