from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.checks import check_graph, check_owner
from secure_fedgraph.graph.data.splits import stratified
from secure_fedgraph.graph.data.synthetic import citation


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 2**31))
def test_split_is_exact_and_stratified(labels: list[int], seed: int) -> None:
    y = torch.tensor(labels)
    masks = torch.stack(stratified(y, seed))
    assert bool((masks.sum(0) == 1).all())
    for label in set(labels):
        size = labels.count(label)
        train, val, test = (masks[:, y == label].sum(1)).tolist()
        assert train >= 1
        assert abs(train - 0.6 * size) < 1 or (size == 1 and train == 1)
        assert abs(val - 0.2 * size) < 1 and abs(test - 0.2 * size) < 1


def test_split_follows_the_seed() -> None:
    y = citation(nodes=200).y
    assert all(torch.equal(a, b) for a, b in zip(stratified(y, 1), stratified(y, 1), strict=True))
    assert not torch.equal(stratified(y, 1)[0], stratified(y, 2)[0])


def test_the_first_node_of_a_class_trains_even_if_the_share_is_small() -> None:
    train, val, test = stratified(torch.tensor([0, 1, 1]), 0, train=0.1, val=0.2)
    assert bool(train[0]) and int(train[1:].sum()) == 1 and int((val | test).sum()) == 1


@pytest.mark.parametrize(("train", "val"), [(0.0, 0.2), (0.9, 0.2), (0.5, -0.1), (1.5, 0.0)])
def test_impossible_shares(train: float, val: float) -> None:
    with pytest.raises(BadInput, match="split shares"):
        stratified(torch.tensor([0, 1]), 0, train, val)


def broken(**changes: object) -> Data:
    graph = citation(nodes=20, features=4, classes=2)
    for key, value in changes.items():
        graph[key] = value
    return graph


def with_value(value: float) -> torch.Tensor:
    x = torch.zeros(20, 4)
    x[7, 2] = value
    return x


def label(value: int) -> torch.Tensor:
    y = torch.zeros(20, dtype=torch.long)
    y[3] = value
    return y


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": with_value(float("nan"))}, r"g: x\[7, 2\] is nan.*not finite"),
        ({"x": with_value(float("inf"))}, r"x\[7, 2\] is inf"),
        ({"x": torch.zeros(20, 4, dtype=torch.long)}, r"x has type torch.int64.*x.float"),
        ({"x": torch.zeros(20)}, r"x has type torch.float32 and shape \(20,\)"),
        ({"x": torch.zeros(0, 4), "y": torch.zeros(0).long()}, "give one node"),
        ({"y": torch.zeros(19).long()}, r"y has type torch.int64 and shape \(19,\)"),
        ({"y": label(-2)}, "node 3 has label -2"),
        ({"y": torch.zeros(20)}, "integer class label"),
        ({"edge_index": torch.tensor([[0], [20]])}, "names node 20, but nodes run from 0 to 19"),
        ({"edge_index": torch.tensor([[-1], [2]])}, "names node -1"),
        (
            {"edge_index": torch.zeros(5, 2, dtype=torch.long)},
            r"shape \(5, 2\); give whole numbers \[2, edges\]",
        ),
        ({"edge_index": torch.zeros(2, 5)}, "edge_index has type torch.float32"),
        ({"edge_index": None}, "edge_index is missing"),
        ({"x": torch.zeros(20, 0)}, "one feature at least"),
        ({"x": torch.zeros(20, 4, device="meta")}, "x is no plain tensor"),
        ({"x": torch.zeros(20, 4).to(torch.float8_e4m3fn)}, "x has type torch.float8_e4m3fn"),
        ({"y": torch.zeros(20).to(torch.uint64)}, "y has type torch.uint64"),
    ],
)
def test_unusable_graphs_are_refused_in_words(changes: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_graph(broken(**changes), "g")


def test_isolated_nodes_and_graphs_without_edges_are_fine() -> None:
    check_graph(broken(), "g")
    check_graph(broken(edge_index=torch.empty(2, 0, dtype=torch.long)), "g")


def test_an_owner_without_training_nodes_is_named() -> None:
    graph = broken(train_mask=torch.zeros(20, dtype=torch.bool))
    with pytest.raises(BadInput, match=r"client 3 has no training nodes .* fewer owners or another seed"):
        check_owner(graph, "client 3")
    graph.train_mask[0] = True
    check_owner(graph, "client 3")
