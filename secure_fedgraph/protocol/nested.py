"""Nested values as one body and back: what a client keeps between rounds, and what a process is told.

The wire format carries flat names and gives numbers for tensors without dimensions. Here a text beside the
values says how they nest and what each was, so that an optimiser's ``step`` comes back as the tensor it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage

_FORM = "form"
_TYPES = {"float32", "float64", "int32", "int64", "uint8", "uint32", "uint64", "bool"}


def pack(value: Any, name: str = "") -> wire.Parts:
    """One body, not joined yet.

    Args:
        value: dictionaries with text keys, lists and tuples of tensors, arrays, numbers, text, bytes, None.
        name: of the value, for the error.

    Raises:
        TypeError: for anything else, naming where it stands.

    >>> unpack(bytes(pack({"adam": {"0": {"step": torch.tensor(2.0)}}, "seen": 3})))
    {'adam': {'0': {'step': tensor(2.)}}, 'seen': 3}
    """
    leaves: wire.Tree = {}
    places: dict[str, str] = {}
    form = json.dumps(_form(value, leaves, places, name))
    try:
        return wire.pack({_FORM: form, **leaves})
    except TypeError:
        for leaf, place in places.items():  # the wire names a leaf by the number that it has here
            try:
                wire.pack({leaf: leaves[leaf]})
            except TypeError as error:
                raise TypeError(f"{_named(place)} {str(error).removeprefix(f'entry {leaf!r} ')}") from None
        raise


def unpack(body: bytes | memoryview) -> Any:
    """The inverse; nothing in it is a view of the body.

    Raises:
        HostileMessage: for anything that :func:`pack` does not write.
    """
    leaves = wire.decode(body)
    try:
        form = json.loads(leaves.pop(_FORM))
        if _count(form) > len(leaves):  # each leaf stands in one place: copies would take room without end
            raise ValueError("a value stands in two places")
        return _value(form, leaves)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, RecursionError):
        raise HostileMessage("a body of nested values does not say how they nest") from None


def _form(value: Any, leaves: wire.Tree, places: dict[str, str], place: str) -> Any:
    if value is None:
        return ["none"]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{_named(place)} has the key {key!r:.60}, which is no text: use text keys")
        return {
            key: _form(inner, leaves, places, f"{place}/{key}".lstrip("/")) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        inner = [_form(item, leaves, places, f"{place}/{number}") for number, item in enumerate(value)]
        return [type(value).__name__ if type(value) in (list, tuple) else "tuple", inner]
    name = str(len(leaves))
    leaves[name], places[name] = value, place
    # a number without dimensions comes back from the wire as Python's, so the type is noted beside it
    if isinstance(value, torch.Tensor):
        return ["tensor", name, str(value.dtype).removeprefix("torch.")]
    return ["array", name, value.dtype.name] if isinstance(value, np.ndarray) else ["is", name]


def _named(place: str) -> str:
    return repr(place) if place else "the value"


def _count(form: Any) -> int:
    """Places of leaves."""
    if isinstance(form, dict):
        return sum(_count(inner) for inner in form.values())
    if form[0] in ("list", "tuple"):
        return sum(_count(item) for item in form[1])
    return int(form[0] != "none")


def _value(form: Any, leaves: wire.Tree) -> Any:
    if isinstance(form, dict):
        return {key: _value(inner, leaves) for key, inner in form.items()}
    kind, *rest = form
    if kind == "none":
        return None
    if kind in ("list", "tuple"):
        items = [_value(item, leaves) for item in rest[0]]
        return items if kind == "list" else tuple(items)
    leaf = leaves[rest[0]]
    if isinstance(leaf, tuple):  # a list of texts is packed text by text
        raise ValueError("a list of texts")
    if kind == "is":
        return leaf
    if rest[1] not in _TYPES or isinstance(leaf, str | bytes):
        raise ValueError(rest[1])
    array = np.array(leaf, dtype=rest[1])  # a copy: writable, and at home in this process
    if kind == "array":
        return array
    if kind == "tensor":
        return torch.from_numpy(array)
    raise ValueError(kind)
