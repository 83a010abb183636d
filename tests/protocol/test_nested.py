"""Nested values: what goes in comes back, tensors without dimensions as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.protocol import nested


def back(value: Any) -> Any:
    return nested.unpack(bytes(nested.pack(value)))


def test_an_optimisers_memory_comes_back_as_it_was() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {str(i): dict(slots) for i, slots in optimizer.state_dict()["state"].items()}
    found = back({"optimizer": state})["optimizer"]
    assert found.keys() == state.keys()
    for slot, values in state.items():
        assert values["step"].dim() == 0
        for key, value in values.items():
            assert isinstance(found[slot][key], torch.Tensor)
            assert found[slot][key].dtype == value.dtype
            assert torch.equal(found[slot][key], value), key
    optimizer.load_state_dict(
        {
            "state": {int(i): s for i, s in found.items()},
            "param_groups": optimizer.state_dict()["param_groups"],
        }
    )
    optimizer.step()  # and what came back can be written to


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.int32, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    found = back(tensor)
    assert found.dtype == dtype
    assert found.shape == tensor.shape
    assert torch.equal(found, tensor)


def test_numbers_arrays_and_structure_keep_their_kind() -> None:
    value = {
        "a/b": 1,
        "a": {"b": 1.5, "none": None, "empty": {}},
        "t": (1, [True, "x", b"y"]),
        "s": np.float32(2),
    }
    found = back({**value, "s": np.array([1.0, 2.0])})
    assert isinstance(found.pop("s"), np.ndarray)
    value.pop("s")
    assert found == value
    assert type(found["t"][1][0]) is bool


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(plain)
def test_whatever_nests_comes_back(value: Any) -> None:
    assert back(value) == value


def test_what_the_format_does_not_carry_is_named() -> None:
    with pytest.raises(TypeError, match=r"^'adam/odd' is of type object, "):
        nested.pack({"adam": {"odd": object()}})
    with pytest.raises(TypeError, match=r"^'adam' has the key 3, which is no text"):
        nested.pack({"adam": {3: 1}})


@pytest.mark.parametrize("form", ["[", '["tensor", "7"]', '["odd", "0"]', "3", '["list"]', "[]"])
def test_a_body_that_does_not_say_how_it_nests(form: str) -> None:
    with pytest.raises(HostileMessage):
        nested.unpack(wire.encode({"form": form, "0": 1}))
    with pytest.raises(HostileMessage):
        nested.unpack(wire.encode({"0": 1}))


def test_a_list_of_texts_in_one_entry_is_none_of_its_own() -> None:
    for form in ('["is", "0"]', '["array", "0", "float32"]'):
        with pytest.raises(HostileMessage):
            nested.unpack(wire.encode({"form": form, "0": ["1.5"]}))
