"""Owners with a graph, or a set of graphs, of their own."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.silos.given import silos_of


def graph(nodes: int = 12, classes: int = 2, **fields: object) -> Data:
    number = torch.arange(nodes)
    links = torch.stack([number[:-1], number[1:]])
    return Data(
        x=torch.randn(nodes, 3, generator=torch.Generator().manual_seed(nodes)),
        y=number % classes,
        edge_index=torch.cat([links, links.flip(0)], 1),
        **fields,
    )


def test_masks_are_kept_to_and_others_are_drawn() -> None:
    masks = {key: torch.arange(12) % 3 == place for place, key in enumerate(MASKS)}
    silos = silos_of({"b": graph(**masks), "a": graph(20)}, 0)
    assert list(silos.owners) == ["a", "b"]
    for key, mask in masks.items():
        assert torch.equal(silos.owners["b"][key], mask)
    parts = torch.stack([silos.owners["a"][key] for key in MASKS])
    assert parts.sum(1).tolist() == [12, 4, 4] and bool((parts.sum(0) == 1).all())


def test_given_graphs_are_copied() -> None:
    given = graph()
    silos = silos_of([given], 0)
    silos.owners["owner-0"].x.zero_()
    assert given.x.abs().sum() > 0 and set(given.keys()) == {"x", "y", "edge_index"}


def test_an_owner_may_lack_a_class_and_test_nodes() -> None:
    no_tests = {key: torch.arange(12) % 2 == place for place, key in enumerate(MASKS[:2])}
    few = graph(classes=1, **no_tests, test_mask=torch.zeros(12, dtype=torch.bool))
    silos = silos_of({"a": graph(13, classes=3), "b": few}, 0)
    assert silos.schema.classes == 3 and not bool(silos.owners["b"].test_mask.any())


def test_nobody_tests() -> None:
    masks = {"train_mask": torch.ones(12, dtype=torch.bool), "val_mask": torch.zeros(12, dtype=torch.bool)}
    with pytest.raises(BadInput, match="no owner has a node or graph to test on"):
        silos_of([graph(**masks, test_mask=masks["val_mask"])], 0)


def test_named_classes_get_one_numbering() -> None:
    one = graph(class_names=["fraud", "ok"])
    other = graph(13, class_names=["closed", "ok"])
    silos = silos_of({"a": one, "b": other}, 0)
    assert silos.schema.classes == 3
    assert silos.owners["a"].y[:2].tolist() == [1, 2]
    assert silos.owners["b"].y[:2].tolist() == [0, 2]


def test_a_field_that_is_not_used_is_named_with_its_owner() -> None:
    with pytest.warns(DataWarning, match="b: age is not used"):
        silos_of({"a": graph(13), "b": graph(age=torch.zeros(12))}, 0)


def test_labels_that_are_no_classes() -> None:
    ids = graph()
    ids.y = ids.y + 500
    with pytest.raises(BadInput, match="b has label 501, which makes 502 classes for 24"):
        silos_of({"a": graph(), "b": ids}, 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "holds no owner"),
        ({"a": 3}, "data of a is an int"),
        ({"a": Data(x=torch.zeros(2, 1))}, "a: edge_index is missing"),
        ({"a": graph(), "b": [graph()]}, "a has one graph and b a set"),
        ({"a": []}, "a has no graphs"),
        ({"a": graph(feature_names=["x"])}, "a: feature_names has 1 names for 3: name all"),
        ({"a": graph(train_mask=torch.ones(12).bool().to_sparse())}, "a: train_mask is no plain tensor"),
        ({"a": graph(class_names=["x"])}, "a: class_names has 1 names for 2: name all"),
    ],
)
def test_data_that_cannot_be_used(data: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        silos_of(data, 0)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")  # torch says that these tensors go out of use
def test_numbers_of_few_bits() -> None:
    weights = torch.quantize_per_tensor(torch.ones(22), 0.1, 0, torch.qint8)
    with pytest.raises(BadInput, match="a: edge_weight is no plain tensor"):
        silos_of({"a": graph(edge_weight=weights)}, 0)


def test_holders_are_a_fact_and_no_more_than_owners() -> None:
    assert silos_of([graph(), graph()], 0, holders=2).facts["holders"] == 2
    with pytest.raises(BadInput, match="holders = 3"):
        silos_of([graph(), graph()], 0, holders=3)


def test_the_same_data_at_two_owners_are_named() -> None:
    data = graph()
    with pytest.warns(DataWarning, match="a and c have the same features and links.*holders = 2"):
        silos_of({"a": data, "b": graph(13), "c": data}, 0)


class TestSets:
    """Graphs that are classified whole."""

    def each(self, count: int, **fields: object) -> list[Data]:
        made = []
        for number in range(count):
            one = graph(4, **fields)
            one.y = torch.tensor([number % 2])
            made.append(one)
        return made

    def test_an_owner_tests_on_a_tenth(self) -> None:
        silos = silos_of([self.each(20), self.each(10)], 0)
        assert silos.facts["graphs"] == 30 and silos.schema.kind == "graph"
        assert [int(one.test_mask.sum()) for one in silos.owners.values()] == [2, 0]
        assert silos.owners["owner-1"].graph_id.tolist() == list(range(20, 30))

    def test_masks_of_graphs(self) -> None:
        graphs = self.each(6)
        for number, one in enumerate(graphs):
            for place, key in enumerate(MASKS):
                one[key] = torch.tensor([number % 3 == place])
        silos = silos_of([graphs], 0)
        assert silos.owners["owner-0"].test_mask.nonzero().flatten().tolist() == [2, 5]

    def test_masks_without_a_graph_to_train_on(self) -> None:
        masks = {key: torch.tensor([key == "test_mask"]) for key in MASKS}
        with pytest.raises(BadInput, match="a: train_mask names no graph"):
            silos_of({"a": self.each(6, **masks)}, 0)

    def test_a_graph_without_a_class(self) -> None:
        graphs = self.each(5)
        graphs[3].y = torch.tensor([0, 1])
        with pytest.raises(BadInput, match="a: graph 3: y is the class of the whole graph"):
            silos_of({"a": graphs}, 0)

    def test_some_have_attributes(self) -> None:
        graphs = self.each(5)
        graphs[2].edge_attr = torch.zeros(6, 1)
        with pytest.raises(BadInput, match="a: graph 2: edge_attr has columns"):
            silos_of({"a": graphs}, 0)

    def test_masks_that_the_first_graph_lacks(self) -> None:
        graphs = self.each(20)
        for one in graphs[1:]:
            for place, key in enumerate(MASKS):
                one[key] = torch.tensor([place == 2])
        with pytest.raises(BadInput, match="a: graph 0 has no train_mask"):
            silos_of({"a": graphs}, 0)

    @pytest.mark.parametrize("key", ["class_names", "feature_names"])
    def test_names_that_are_not_every_graphs(self, key: str) -> None:
        names = ["no", "yes"] if key == "class_names" else ["p", "q", "r"]
        graphs = self.each(5, **{key: names})
        graphs[3][key] = names[::-1]  # would be read as the first graph's
        with pytest.raises(BadInput, match=f"a: graph 3: {key}"):
            silos_of({"a": graphs}, 0)
        with pytest.raises(BadInput, match=f"a: graph 1: {key}"):
            silos_of({"a": [*self.each(1), *graphs]}, 0)

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"num_nodes": 10**13}, "graph 3"),
            ({"num_nodes": -5}, "graph 3"),
            ({"y": torch.tensor([1 + 2j])}, "graph 3: y is the class"),
            ({"y": torch.tensor([1]).to_sparse()}, "graph 3: y is the class"),
            ({"y": torch.tensor([2**63], dtype=torch.uint64)}, "graph 3: y is the class"),
            ({"edge_attr": torch.ones(6, 3)}, "graph 3: edge_attr has columns"),
            ({"edge_attr": torch.ones(6)}, "graph 3: edge_attr has columns"),
        ],
    )
    def test_graphs_that_do_not_fit(self, fields: dict[str, object], words: str) -> None:
        graphs = self.each(20, edge_attr=torch.ones(6, 2))
        for key, value in fields.items():
            graphs[3][key] = value
        if "num_nodes" in fields:  # nothing is made of that size
            silos = silos_of({"a": graphs}, 0)
            assert silos.owners["a"].num_nodes == 80
        else:
            with pytest.raises(BadInput, match=f"a: {words}"):
                silos_of({"a": graphs}, 0)

    def test_labels_that_are_no_classes(self) -> None:
        graphs = self.each(20)
        graphs[3].y = torch.tensor([10**9])
        with pytest.raises(BadInput, match="a has label 1000000000"):
            silos_of({"a": graphs}, 0)

    def test_edge_weights_are_named_as_not_used(self) -> None:
        with pytest.warns(DataWarning, match="a: edge_weight is not used"):
            silos_of({"a": self.each(20, edge_weight=torch.ones(6))}, 0)


def test_without_notes_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silos_of([graph(12), graph(13)], 0)
        silos_of([graph(), graph()], 0, holders=2)
