"""Uploads and their layouts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.upload import MAX_TENSORS, Layout, Upload, all_finite


def test_a_clients_upload_is_one_row():
    layout, matrix = Upload({"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.tensor(5.0)}).packed(
        Unit.CLIENT
    )
    assert matrix.tolist() == [[1, 2, 3, 4, 5]]
    assert matrix.dtype == np.float32
    assert layout.to_text() == "1\nw:2,2\nb:"
    assert layout.width == 5
    back = layout.unpack(matrix, by_row=False)
    assert back["w"].tolist() == [[1, 2], [3, 4]]
    assert back["b"].shape == ()


@pytest.mark.parametrize("unit", [Unit.NODE, Unit.EDGE, Unit.GRAPH])
def test_other_units_have_a_row_each(unit):
    layout, matrix = Upload(
        {"h": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "s": torch.tensor([5.0, 6.0])}
    ).packed(unit)
    assert matrix.tolist() == [[1, 2, 5], [3, 4, 6]]
    assert layout.to_text() == "2\nh:2\ns:"
    back = layout.unpack(matrix, by_row=True)
    assert back["h"].tolist() == [[1, 2], [3, 4]]
    assert back["s"].tolist() == [5, 6]


def test_no_rows_at_all():
    layout, matrix = Upload({"h": torch.zeros(0, 3)}).packed(Unit.NODE)
    assert matrix.shape == (0, 3)
    assert layout.unpack(matrix, by_row=True)["h"].shape == (0, 3)


def test_of_a_matrix_that_nobody_else_has_only_what_lies_in_several_pieces_is_copied():
    layout, matrix = Upload({"h": torch.ones(2, 2), "s": torch.ones(2)}).packed(Unit.NODE)
    rows = layout.unpack(matrix, by_row=True, owned=True)
    one = Upload({"w": torch.ones(2, 2), "b": torch.ones(1)}).packed(Unit.CLIENT)
    pieces = one[0].unpack(one[1], by_row=False, owned=True)
    shown = one[1].view()
    shown.flags.writeable = False  # as a view of a message is
    copies = one[0].unpack(shown, by_row=False, owned=True)
    matrix[:], one[1][:] = 7, 7
    assert rows["h"].tolist() == [[1, 1], [1, 1]] and rows["s"].tolist() == [1, 1]
    assert pieces["w"].tolist() == [[7, 7], [7, 7]] and pieces["b"].tolist() == [7]
    assert copies["w"].tolist() == [[1, 1], [1, 1]] and copies["b"].tolist() == [1]


def test_the_upload_is_a_copy():
    value = torch.zeros(3)
    _, matrix = Upload({"w": value}).packed(Unit.CLIENT)
    matrix[0, 0] = 1
    assert value[0] == 0


@pytest.mark.parametrize(
    ("values", "unit", "sentence"),
    [
        ({}, Unit.CLIENT, "holds no tensor"),
        ({"a": torch.zeros(2, 1), "b": torch.zeros(3, 1)}, Unit.NODE, "one row a node needs the same"),
        ({"a": torch.tensor(1.0)}, Unit.EDGE, "one row a edge needs the same"),
        ({"a:1": torch.zeros(2)}, Unit.CLIENT, "do not fit a layout"),
        ({"a:1\nb": torch.zeros(2)}, Unit.CLIENT, "do not fit a layout"),
        ({"": torch.zeros(2)}, Unit.CLIENT, "do not fit a layout"),
        ({"\ud800": torch.zeros(2)}, Unit.CLIENT, "do not fit a layout"),
        ({"n" * 201: torch.zeros(2)}, Unit.CLIENT, "do not fit a layout"),
        ({"a": torch.zeros((1,) * 9)}, Unit.CLIENT, "do not fit a layout"),
        ({str(i): torch.zeros(1) for i in range(MAX_TENSORS + 1)}, Unit.CLIENT, "at most 4096"),
    ],
)
def test_what_is_not_sent(values, unit, sentence):
    with pytest.raises(BadInput, match=sentence):
        Upload(values).packed(unit)


def test_what_is_not_finite_travels_as_zero_and_is_logged(caplog):
    wide = torch.tensor([1e300, 2.0], dtype=torch.float64)
    values = {"a": torch.tensor([1.0, float("nan")]), "b": torch.tensor([-float("inf"), 3.0]), "c": wide}
    _, matrix = Upload(values).packed(Unit.CLIENT)
    assert matrix.tolist() == [[1.0, 0.0, 0.0, 3.0, 0.0, 2.0]]
    (record,) = caplog.records
    assert record.name == "secure_fedgraph.upload"
    assert "'a'" in record.getMessage()
    caplog.clear()
    Upload({"a": torch.ones(2)}).packed(Unit.CLIENT)
    assert not caplog.records


def test_layouts_that_cannot_be():
    with pytest.raises(HostileMessage, match="names a tensor twice"):
        Layout.from_text("1\na:1\na:2")
    with pytest.raises(HostileMessage, match="cannot be read"):
        Layout.from_text("1" + "".join(f"\na{i}:1" for i in range(MAX_TENSORS + 1)))
    # the empty ones promise no values, and numpy cannot shape them
    for text in ("1\na:999999999999,999999999999", "0\na:999999999999,999999999999", "999999999999\na:99,0"):
        with pytest.raises(HostileMessage, match="more than 1099511627776 values"):
            Layout.from_text(text)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("values", "finite"),
    [
        ([], True),
        ([3e38, 3e38], True),  # their sum is no float32
        ([3e38, 3e38, float("nan")], False),
        ([float("inf"), 1.0], False),
        ([float("inf"), -float("inf")], False),
    ],
)
def test_values_that_are_finite_though_their_sum_is_not(values, finite):
    assert all_finite(np.array(values, dtype=np.float32)) is finite


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, device="meta"),
    ],
    ids=["sparse", "complex", "meta"],
)
def test_tensors_that_cannot_travel_are_refused_by_name(value):
    with pytest.raises(BadInput, match="'w' in an upload is"):
        Upload({"w": value}).packed(Unit.CLIENT)


def test_a_view_of_opposite_sign_travels_as_its_values():
    _, matrix = Upload({"w": torch.ones(2)._neg_view()}).packed(Unit.CLIENT)
    assert matrix.tolist() == [[-1.0, -1.0]]
