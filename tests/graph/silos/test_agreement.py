"""What owners agree on: a schema by what they declare, who has which node, and which rows are trained on."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.carriers.history import History
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.silos.agreement import Declaration, agreed, check_names
from secure_fedgraph.graph.silos.aligned import digest_of_training_rows
from secure_fedgraph.graph.silos.given import parts_by_owner


def declared(**changed: object) -> Declaration:
    return Declaration(**{"features": 2, "classes": 3, **changed})


def test_the_largest_number_of_classes_holds_for_all() -> None:
    both = {"a": declared(classes=2), "b": declared(classes=5)}
    assert agreed(both, "node", None).classes == 5
    assert agreed(both, "node", 7).classes == 7


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"features": 3}, "features is 3 at b and 2 at a"),
        ({"edge_weight": True}, "edge_weight is True at b and False at a"),
        ({"edge_attr": 4}, "edge_attr is 4 at b and 'missing' at a"),
        ({"feature_names": ("age", "pay")}, "feature 1 is 'pay' at b and 'sum' at a"),
        ({"class_names": ("x", "y", "z")}, "b names its classes and a numbers them"),
    ],
)
def test_what_differs_is_named_with_both_owners(changed: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)):
        agreed({"a": declared(feature_names=("age", "sum")), "b": declared(**changed)}, "node", None)


def test_fewer_classes_than_an_owner_has() -> None:
    with pytest.raises(BadInput, match=r"classes = 2: b has labels for 5"):
        agreed({"a": declared(), "b": declared(classes=5)}, "node", 2)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "-x", "x" * 65, "server", "Referee", "a b", "a\n", 3]
)
def test_a_name_that_no_owner_can_have(name: object) -> None:
    with pytest.raises(BadInput, match="owner"):
        check_names({name: None})  # type: ignore[dict-item]


def test_names_that_are_one_folder_on_some_machines() -> None:
    with pytest.raises(BadInput, match="differ only in case"):
        check_names({"Bank": None, "bank": None})


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


def test_other_training_rows_are_another_history() -> None:
    some, others = np.array([1, 1, 0], dtype=np.uint8), np.array([0, 1, 1], dtype=np.uint8)
    heads = {
        History("run", common=one).head
        for one in ("", digest_of_training_rows(some), digest_of_training_rows(others))
    }
    assert len(heads) == 3
    assert digest_of_training_rows(some.astype(bool)) == digest_of_training_rows(some)
