"""Owners of columns: rows are aligned by name, labels agree, and the test labels are the referee's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.partition.result import EVERYBODY
from secure_fedgraph.graph.silos.given import silos_of
from secure_fedgraph.graph.silos.result import Silos

ROWS = 30


def table(order: torch.Tensor, columns: int, **fields: object) -> Data:
    """Column values say which row they are of."""
    return Data(x=order.float()[:, None] + torch.arange(columns) / 10, id=order.tolist(), **fields)


def shuffled(seed: int) -> torch.Tensor:
    return torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))


def two(**fields: object) -> dict[str, Data]:
    first = shuffled(1)
    return {"a": table(first, 2, y=first % 3, **fields), "b": table(shuffled(2), 1)}


def aligned(silos: Silos) -> torch.Tensor:
    rows = [owner.x[:, 0].round() for owner in silos.owners.values()]
    for other in rows[1:]:
        assert torch.equal(rows[0], other)
    return rows[0].long()


def test_rows_are_aligned_and_their_order_is_nobodys() -> None:
    silos = silos_of(two(), 0, rows="id")
    rows = aligned(silos)
    assert sorted(rows.tolist()) == list(range(ROWS))
    assert rows.tolist() not in ([*range(ROWS)], shuffled(1).tolist(), shuffled(2).tolist())
    assert torch.equal(silos.test_set.labels, rows % 3)
    assert silos.facts["columns"] == [2, 1] and silos.schema.features == 3


def test_no_client_keeps_a_test_label() -> None:
    silos = silos_of(two(), 0, rows="id")
    test, owner = silos.test_set.tests[EVERYBODY], silos.owners["a"]
    assert len(test) and bool((owner.y[test] == -1).all())
    assert bool((owner.y[owner.train_mask] >= 0).all()) and not bool(owner.test_mask.any())
    assert bool((silos.owners["b"].y == -1).all())


def test_rows_that_one_owner_lacks_are_left_out_with_their_links() -> None:
    given = two()
    first = torch.tensor(given["a"].id)
    given["a"].edge_index = torch.stack([torch.arange(ROWS - 1), torch.arange(1, ROWS)])
    given["b"] = table(torch.arange(20), 1)
    with pytest.warns(DataWarning, match="left out: 10 of a"):
        silos = silos_of(given, 0, rows="id")
    rows = aligned(silos)
    assert sorted(rows.tolist()) == list(range(20))
    kept = {frozenset((int(u), int(v))) for u, v in pairwise(first) if max(u, v) < 20}
    links = rows[silos.owners["a"].edge_index]
    assert {frozenset(pair) for pair in links.T.tolist()} == kept
    assert links.shape[1] == 2 * len(kept)


def test_masks_of_the_owner_of_labels_are_kept_to() -> None:
    first = shuffled(1)
    masks = {key: first % 5 == place for place, key in enumerate(("train_mask", "val_mask", "test_mask"))}
    silos = silos_of(two(**masks), 0, rows="id")
    rows = aligned(silos)
    assert set((rows[silos.test_set.tests[EVERYBODY]] % 5).tolist()) == {2}
    assert set((rows[silos.owners["a"].train_mask] % 5).tolist()) == {0}


def test_words_and_numbers_name_the_same_row() -> None:
    given = two()
    given["b"].id = [str(one) for one in given["b"].id]
    aligned(silos_of(given, 0, rows="id"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda g: g.pop("b"), "at least two"),
        (lambda g: g["b"].__delattr__("id"), "b has no field 'id'"),
        (lambda g: g["b"].__setattr__("id", [0] * ROWS), "b: id has '0' more than once"),
        (lambda g: g["b"].__setattr__("id", list(range(100, 100 + ROWS))), "no value of 'id' is at every"),
        (lambda g: g["b"].__setattr__("id", list(range(5))), "b: id names 5 rows, and x has 30"),
        (lambda g: g["b"].__setattr__("id", torch.rand(ROWS)), "b: id is no list"),
        (lambda g: g["a"].__delattr__("y"), "y is at no owner"),
        (lambda g: g["b"].__setattr__("y", shuffled(2) % 2), "rows differently"),
        (lambda g: g.update(c=g.pop("a")), "rename one"),
        (
            lambda g: g["a"].__setattr__("train_mask", torch.ones(ROWS, dtype=torch.bool)),
            "val_mask is missing",
        ),
        (lambda g: g["b"].__setattr__("id", torch.arange(ROWS).to_sparse()), "b: id is no list"),
        (lambda g: g["b"].__setattr__("id", np.array(5)), "b: id is no list"),
        (lambda g: g["a"].__setattr__("y", 10**12 + shuffled(1) % 3), "a: label 1000000000002"),
        (lambda g: g["a"].__setattr__("class_names", ["p", "q"]), "a: class_names has 2 names"),
    ],
)
def test_tables_that_cannot_be_used(change, words: str) -> None:
    given = two()
    change(given)
    with pytest.raises(BadInput, match=words):
        silos_of(given, 0, rows="id")


def both(**fields: object) -> dict[str, Data]:
    """Two owners with labels and masks."""
    given = two(**fields)
    for one in given.values():
        rows = torch.tensor(one.id)
        one.y = rows % 2
        for place, key in enumerate(MASKS):
            one[key] = rows % 3 == place
    return given


@pytest.mark.parametrize("wrong", [torch.ones(5, dtype=torch.bool), torch.ones(ROWS), "x"])
def test_masks_of_the_second_owner_of_labels(wrong: object) -> None:
    given = both()
    silos_of(given, 0, rows="id")
    given["b"].test_mask = wrong
    with pytest.raises(BadInput, match=r"b: test_mask [^;]*; give a boolean a row in all three masks"):
        silos_of(given, 0, rows="id")


def test_named_classes_get_one_numbering() -> None:
    """Each labels half of the rows: nothing would show that 0 is another class at the other."""
    given = both()
    for one, (half, names) in zip(given.values(), ((0, ["p", "q"]), (1, ["q", "r"])), strict=True):
        rows = torch.tensor(one.id)
        one.y = torch.where(rows // 15 == half, rows % 2, -1)
        one.class_names = names
    silos = silos_of(given, 0, rows="id")
    rows = aligned(silos)
    assert torch.equal(silos.test_set.labels, rows % 2 + rows // 15) and silos.schema.classes == 3
    del given["b"].class_names
    with pytest.raises(BadInput, match="b: class_names has 0 names"):
        silos_of(given, 0, rows="id")


def test_rows_with_labels_that_others_lack() -> None:
    given = two()
    given["a"].y = torch.where(torch.tensor(given["a"].id) < 10, 1, -1)
    given["b"] = table(torch.arange(10, ROWS), 1)
    with pytest.warns(DataWarning), pytest.raises(BadInput, match="a: no row that every owner has"):
        silos_of(given, 0, rows="id")


def test_more_classes_than_labelled_rows() -> None:
    with pytest.raises(BadInput, match="classes = 1000000000"):
        silos_of(two(), 0, classes=10**9, rows="id")


def test_what_is_not_used_is_named_with_its_owner() -> None:
    given = two(edge_weight=torch.ones(0))
    given["b"].test_mask = torch.ones(ROWS, dtype=torch.bool)  # of an owner without labels
    with pytest.warns(DataWarning, match="a: edge_weight is not used; b: test_mask is not used"):
        silos_of(given, 0, rows="id")


def test_holders_are_the_owners() -> None:
    assert silos_of(two(), 0, rows="id").facts["holders"] == 2
    with pytest.raises(BadInput, match="leave holders out"):
        silos_of(two(), 0, rows="id", holders=2)
