"""Owners agree on a schema by what they declare, and a misfit names both."""

from __future__ import annotations

import re

import pytest

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.silos.agreement import Declaration, agreed, check_names


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
