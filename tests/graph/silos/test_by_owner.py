"""One graph, and a vector of who has which node."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.silos.by_owner import parts_by_owner

PATH = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)


def test_numbers_and_names() -> None:
    for owners in (torch.tensor([1, 0, 0, 1]), [1, 0, 0, 1]):
        names, parts = parts_by_owner(PATH, owners)
        assert names == ("owner-0", "owner-1")
        assert [part.tolist() for part in parts.parts] == [[1, 2], [0, 3]]
        assert (parts.inner_links, parts.missing_links) == ((1, 0), 2)
    assert parts_by_owner(PATH, ["b", "a", "a", "b"])[0] == ("a", "b")


@pytest.mark.parametrize(
    ("owners", "words"),
    [
        ([0, 1], "names 2 owners for 4 nodes"),
        ([0, -1, 0, 0], "a whole number from 0"),
        ([0, "a", 0, 0], "or a name for each"),
        ([0.0, 1.0, 0.0, 1.0], "or a name for each"),
        (["a", "../b", "a", "a"], "owner '../b'"),
        (5, "owners is an int"),
        (torch.tensor(1), "owners is a Tensor"),
        ("abab", "owners is a str"),
    ],
)
def test_vectors_that_cannot_be_used(owners: list[object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parts_by_owner(PATH, owners)  # type: ignore[arg-type]
