"""The typed binary format of everything that is sent or kept: named arrays, texts and bytes, nothing else.

Layout, little-endian::

    "SFG" version:u8 entries:u16
    per entry: name length:u16, name (UTF-8), type:u8, dimensions:u8, each dimension:u64
    the payloads, back to back, in the order of the entries

A list of texts has two dimensions, how many they are and how many bytes they have together; its payload is
the length of each (u32), then the texts.

All lengths are added up and compared with the length of the body before a single array is made, so a
header that promises a terabyte on a ten-byte body costs nothing. There is no object type in the format,
hence nothing to execute: pickle is never used.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from secure_fedgraph.core.errors import HostileMessage

Value = Any  # np.ndarray | torch.Tensor | bytes | str | tuple[str, ...] | int | float, checked by `encode`
Tree = dict[str, Value]

MAGIC = b"SFG"
VERSION = 1
BYTES = (bytes, memoryview)
"""What a bytes entry may come back as."""
MAX_ENTRIES = 65_535
MAX_NAME = 256
MAX_DIMENSIONS = 8
MAX_TEXTS = 65_535
"""In one list: each text takes more memory than its bytes on the wire, so their number is bounded."""

_TEXT, _BYTES, _TEXTS = 100, 101, 102
_LENGTH = np.dtype("<u4")
"""Of one text in a list."""
_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i8"),
    4: np.dtype("<u4"),
    5: np.dtype("<u8"),
    6: np.dtype("<u1"),
    7: np.dtype("?"),
    8: np.dtype("<i4"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_BOOL, _INT64 = 7, 3
_SCALARS = {code: struct.Struct("<" + form) for code, form in zip(_DTYPES, "fdqIQBBi", strict=True)}
"""How one number of each type is read."""
_HEAD, _NAME_LENGTH, _KIND = struct.Struct("<BH"), struct.Struct("<H"), struct.Struct("<BB")
_SHAPES = [struct.Struct(f"<{dimensions}Q") for dimensions in range(MAX_DIMENSIONS + 1)]
_LARGEST = 2**63
_SURROGATE = re.compile("[\ud800-\udfff]")


class Parts:
    """A body that is not joined yet: nested into another one, its bytes are copied once, at the end."""

    __slots__ = ("buffers", "length")

    def __init__(self, buffers: list[Any]) -> None:
        self.buffers = buffers
        self.length = sum(map(len, buffers))

    def __bytes__(self) -> bytes:
        return b"".join(self.buffers)


def encode(tree: Mapping[str, Value]) -> bytes:
    """Turns named values into one body.

    Args:
        tree: names to arrays (float32/64, int32/64, uint8/32/64, bool), tensors, text, lists or tuples of
            texts, bytes, ints, floats.

    Returns:
        The body. The same tree gives the same bytes.

    Raises:
        TypeError: for a value the format does not know.

    >>> decode(encode({"step": 3, "name": "cora"}))
    {'step': 3, 'name': 'cora'}
    >>> decode(encode({"owners": ["north", "south"]}))
    {'owners': ('north', 'south')}
    """
    return bytes(pack(tree))


def pack(tree: Mapping[str, Value]) -> Parts:
    """As :func:`encode`, not joined; values may be :class:`Parts` themselves, which arrive as bytes."""
    if not isinstance(tree, Mapping):
        raise TypeError(f"a body is a dict from names to values, not a {type(tree).__name__}")
    if len(tree) > MAX_ENTRIES:
        raise TypeError(f"a body holds at most {MAX_ENTRIES} entries, not {len(tree)}")
    head = [MAGIC, _HEAD.pack(VERSION, len(tree))]
    payloads: list[Any] = []
    for name, value in tree.items():
        code, shape, payload = _describe(name, value)
        head += (_packed_name(name), _KIND.pack(code, len(shape)), _SHAPES[len(shape)].pack(*shape))
        payloads += payload
    return Parts([b"".join(head), *payloads])


@lru_cache(maxsize=4096)
def _packed_name(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"entry name {name!r:.40} is no text")
    raw = _utf8(name, name)
    if not 0 < len(raw) <= MAX_NAME:
        raise TypeError(f"entry name {name[:40]!r} must have 1 to {MAX_NAME} bytes")
    return _NAME_LENGTH.pack(len(raw)) + raw


def decode(body: bytes | memoryview, *, views: bool = False) -> Tree:
    """The named values of a body, with every length checked before anything is allocated.

    Arrays are read-only views of the body. Zero-dimensional numbers come back as int, float or bool, lists of
    texts as tuples.

    Args:
        body: what :func:`encode` made.
        views: give bytes entries as read-only views of the body too, not as copies.

    Raises:
        HostileMessage: for anything that :func:`encode` does not write.
    """
    view = memoryview(body)
    if view[:3] != MAGIC:
        if len(view) < len(MAGIC):
            raise _ends_early(view)
        raise HostileMessage("a message body does not start with the format's mark")
    try:
        version, entries = _HEAD.unpack_from(view, 3)
        if version != VERSION:
            raise HostileMessage(f"message format {version} is not known here; this side speaks {VERSION}")
        at, described = 6, list[tuple[str, int, tuple[int, ...], int]]()
        for _ in range(entries):
            at, name, code, shape, size = _read_entry(view, at)
            described.append((name, code, shape, size))
    except struct.error:
        raise _ends_early(view) from None
    if len({name for name, *_ in described}) != entries:
        raise HostileMessage("a message body names an entry twice")
    promised = sum(size for *_, size in described)
    if promised != len(view) - at:
        raise HostileMessage(f"a message body promises {promised} bytes and holds {len(view) - at}")
    values: Tree = {}
    for name, code, shape, size in described:
        value = _value(code, shape, view[at : at + size])
        values[name] = value if views or code != _BYTES else bytes(value)
        at += size
    return values


def _ends_early(view: memoryview) -> HostileMessage:
    return HostileMessage(f"a message body of {len(view)} bytes ends too early")


def is_text(value: object) -> bool:
    r"""Whether it is text that UTF-8, and so a body, carries.

    >>> is_text("model"), is_text("\ud800"), is_text(3)
    (True, False, False)
    """
    return isinstance(value, str) and _SURROGATE.search(value) is None


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TypeError(f"entry {name!r:.60} holds a character that UTF-8 does not carry") from None


def _describe(name: str, value: Value) -> tuple[int, tuple[int, ...], list[Any]]:
    if isinstance(value, str):
        raw = _utf8(name, value)
        return _TEXT, (len(raw),), [raw]
    if type(value) is int and -_LARGEST <= value < _LARGEST:
        return _INT64, (), [_SCALARS[_INT64].pack(value)]
    if isinstance(value, Parts):
        return _BYTES, (value.length,), value.buffers
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return _describe_texts(name, [_utf8(name, one) for one in value])
    if isinstance(value, bytes | bytearray | memoryview):
        octets = memoryview(value).cast("B")
        return _BYTES, (len(octets),), [octets]
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    elif isinstance(value, bool | int | float):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"entry {name!r} is of type {type(value).__name__}, which the wire format does not carry"
        )
    dtype = value.dtype.newbyteorder("<")
    if dtype not in _CODES:
        raise TypeError(f"entry {name!r} has dtype {value.dtype}, which the wire format does not carry")
    shape = value.shape
    if len(shape) > MAX_DIMENSIONS:
        raise TypeError(
            f"entry {name!r} has {len(shape)} dimensions; the wire format carries {MAX_DIMENSIONS}"
        )
    # ascontiguousarray would turn a number into a vector of one, hence the shape from before
    return (
        _CODES[dtype],
        shape,
        [np.ascontiguousarray(value, dtype=dtype).data.cast("B")] if value.size else [],
    )


def _describe_texts(name: str, raws: list[bytes]) -> tuple[int, tuple[int, ...], list[Any]]:
    if len(raws) > MAX_TEXTS:
        raise TypeError(f"entry {name!r} lists {len(raws)} texts; the wire format carries {MAX_TEXTS}")
    texts = b"".join(raws)
    if len(texts) > np.iinfo(_LENGTH).max:
        raise TypeError(f"entry {name!r} has texts of {len(texts)} bytes; send them as bytes")
    return _TEXTS, (len(raws), len(texts)), [np.array([*map(len, raws)], _LENGTH).tobytes() + texts]


def _read_entry(view: memoryview, at: int) -> tuple[int, str, int, tuple[int, ...], int]:
    """Where the next entry begins, and this one's name, type, shape and bytes of payload."""
    (length,) = _NAME_LENGTH.unpack_from(view, at)
    if not 0 < length <= MAX_NAME:
        raise HostileMessage(f"an entry name of {length} bytes is not allowed")
    at += _NAME_LENGTH.size + length
    code, dimensions = _KIND.unpack_from(view, at)  # refuses a name that is cut short too
    try:
        name = str(view[at - length : at], "utf-8")
    except UnicodeDecodeError:
        raise HostileMessage("an entry name is not UTF-8") from None
    if dimensions > MAX_DIMENSIONS:
        raise HostileMessage(f"an entry with {dimensions} dimensions is not allowed")
    sizes = _SHAPES[dimensions]
    shape = sizes.unpack_from(view, at + _KIND.size)
    at += _KIND.size + sizes.size
    if code in (_TEXT, _BYTES):
        if dimensions != 1:
            raise HostileMessage("text and bytes have one dimension")
        return at, name, code, shape, shape[0]
    if code == _TEXTS:
        if dimensions != 2:
            raise HostileMessage("a list of texts has two dimensions")
        if shape[0] > MAX_TEXTS:
            raise HostileMessage(f"a list of {shape[0]} texts is not allowed")
        return at, name, code, shape, shape[0] * _LENGTH.itemsize + shape[1]
    if code not in _DTYPES:
        raise HostileMessage(f"entry type {code} is not known")
    size = _DTYPES[code].itemsize
    for n in shape:  # plain ints: no overflow, however large the promise
        size *= n
    return at, name, code, shape, size


def _value(code: int, shape: tuple[int, ...], payload: memoryview) -> Value:
    if code == _BYTES:
        return payload.toreadonly()
    if code == _TEXT:
        try:
            return str(payload, "utf-8")
        except UnicodeDecodeError:
            raise HostileMessage("a text entry is not UTF-8") from None
    if code == _TEXTS:
        return _texts(payload, count=shape[0])
    if code == _BOOL and np.frombuffer(payload, dtype=np.uint8).max(initial=0) > 1:
        raise HostileMessage("a truth value is neither 0 nor 1")
    if not shape:
        (number,) = _SCALARS[code].unpack(payload)
        return bool(number) if code == _BOOL else number
    array = np.frombuffer(payload, dtype=_DTYPES[code])
    if len(shape) == 1:
        return array
    try:
        return array.reshape(shape)
    except ValueError:  # an empty array whose other dimensions cannot exist
        raise HostileMessage("an entry has an impossible shape") from None


def _texts(payload: memoryview, count: int) -> tuple[str, ...]:
    lengths = np.frombuffer(payload, dtype=_LENGTH, count=count)
    texts = payload[count * _LENGTH.itemsize :]
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    if (ends[-1] if count else 0) != len(texts):
        raise HostileMessage("the lengths of a list of texts do not add up to its bytes")
    try:
        return tuple(bytes(texts[start:end]).decode() for start, end in pairwise([0, *ends]))
    except UnicodeDecodeError:
        raise HostileMessage("a list of texts holds one that is not UTF-8") from None
