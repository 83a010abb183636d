"""The binary format: golden bytes, every type, and what it refuses."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
import torch

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage


def body(*entries: tuple[str, int, tuple[int, ...]], payload: bytes = b"", version: int = 1) -> bytes:
    """Bytes as the format's description says, written without the format's own code."""
    head = b"SFG" + struct.pack("<BH", version, len(entries))
    for name, code, shape in entries:
        raw = name.encode()
        head += struct.pack("<H", len(raw)) + raw + struct.pack("<BB", code, len(shape))
        head += b"".join(struct.pack("<Q", n) for n in shape)
    return head + payload


class TestGolden:
    def test_a_number_and_a_text(self):
        # mark SFG, version 1, two entries; "step": type 3 (int64), no dimension; "name": type 100 (text) of
        # length 4; then 3 in eight little-endian bytes and "cora".
        expected = "534647010200040073746570030004006e616d656401"
        expected += "04000000000000000300000000000000636f7261"
        assert wire.encode({"step": 3, "name": "cora"}).hex() == expected

    def test_a_float_matrix(self):
        # type 1 (float32), two dimensions 1 and 2; 1.0 is 3f800000 and -2.0 is c0000000, little-endian
        expected = "534647010100010077010201000000000000000200000000000000"
        expected += "0000803f000000c0"
        assert wire.encode({"w": torch.tensor([[1.0, -2.0]])}).hex() == expected

    def test_a_list_of_texts(self):
        # "o": type 102 (texts), two dimensions: 2 texts of 3 bytes together; lengths 1 and 2; then "a", "bc"
        expected = "534647010100" + "01006f6602" + "0200000000000000" + "0300000000000000"
        expected += "01000000" + "02000000" + "616263"
        assert wire.encode({"o": ["a", "bc"]}).hex() == expected

    def test_the_empty_tree(self):
        assert wire.encode({}).hex() == "534647010000"
        assert wire.decode(bytes.fromhex("534647010000")) == {}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u4", "u8", "u1", "?", "i4"])
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0), (2, 3), (1, 1, 1, 1, 1, 1, 1, 2)])
def test_every_array_comes_back(dtype, shape):
    array = (np.arange(np.prod(shape)) % 2).astype(dtype).reshape(shape)
    back = wire.decode(wire.encode({"a": array}))["a"]
    assert back.dtype == np.dtype(dtype)
    assert back.shape == shape
    assert np.array_equal(back, array)


def test_values_without_dimension_come_back_as_python_numbers():
    tree = {"i": -(2**62), "f": 0.1, "b": True, "u": 2**63, "t": "Grüße", "r": b"\x00\xff", "e": ""}
    back = wire.decode(wire.encode(tree))
    assert back == tree
    assert [type(v) for v in back.values()] == [int, float, bool, int, str, bytes, str]


@pytest.mark.parametrize("texts", [(), ("",), ("a", "", "Grüße\n"), ("x",) * 65_535])
def test_lists_of_texts_come_back_as_tuples(texts):
    for given in (texts, list(texts)):
        assert wire.decode(wire.encode({"before": 1, "names": given, "after": 2})) == {
            "before": 1,
            "names": texts,
            "after": 2,
        }


def test_big_endian_strided_and_wide_memory_views_are_sent_by_value():
    tree = {"a": np.arange(6, dtype=">f4")[::2], "m": memoryview(np.arange(3, dtype="<i8"))}
    back = wire.decode(wire.encode(tree))
    assert back["a"].tolist() == [0, 2, 4]
    assert back["m"] == np.arange(3, dtype="<i8").tobytes()  # a memory view's length counts items, not bytes


def test_decoded_arrays_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        wire.decode(wire.encode({"a": np.zeros(2)}))["a"][0] = 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        object(),
        [1, 2],
        ["a", 2],
        {"a", "b"},
        np.array(["a"]),
        np.array([1 + 1j]),
        2**70,
        torch.zeros(1, dtype=torch.bfloat16),
        "\ud800",
        ["a", "\ud800"],
    ],
)
def test_what_the_format_does_not_carry(value):
    with pytest.raises(TypeError):
        wire.encode({"a": value})


def test_more_than_the_format_can_say_is_refused_when_written():
    with pytest.raises(TypeError, match="at most 65535 entries, not 65536"):
        wire.encode({str(i): 0 for i in range(65_536)})
    with pytest.raises(TypeError, match="has 9 dimensions; the wire format carries 8"):
        wire.encode({"a": np.zeros((1,) * 9)})
    for name in ("", "n" * 257):
        with pytest.raises(TypeError, match="1 to 256 bytes"):
            wire.encode({name: 0})
    with pytest.raises(TypeError, match="lists 65536 texts"):
        wire.encode({"a": ["x"] * 65_536})


@pytest.mark.parametrize(
    ("code", "shape"),
    [(2, (2**60,)), (2, (2**32, 2**32)), (2, (2**63, 2**63, 2**63)), (102, (65_535, 2**63)), (102, (9, 0))],
)
def test_a_promise_costs_nothing(code, shape):
    raw = body(("a", code, shape), payload=bytes(8))
    tracemalloc.start()
    with pytest.raises(HostileMessage, match="promises"):
        wire.decode(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
