"""Copies and bodies of what somebody keeps, with an error that names the entry."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.protocol import nested

Copied = TypeVar("Copied")


def copied(value: Copied, what: str) -> Copied:
    """A deep copy.

    Args:
        what: it is, for the error.

    Raises:
        BadInput: for what cannot be copied.
    """
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise BadInput(
            f"{what} cannot be copied ({type(error).__name__}: {error}), and every client and the referee "
            "work with copies of their own: let it hold plain values, modules and detached tensors"
        ) from error


def packed(name: str, value: object, owner: str) -> wire.Parts:
    """An entry of somebody's memory as a body.

    Raises:
        BadInput: for what no body carries, naming the entry and the place in it.
    """
    try:
        return nested.pack(value, name)
    except TypeError as error:
        raise BadInput(
            f"{owner}'s memory {error}; keep tensors, numbers, texts, and lists and dicts of them there"
        ) from None


def copied_memory(memory: dict[str, Any], owner: str) -> dict[str, Any]:
    """A deep copy of somebody's memory; a tensor that cannot be copied, since it has a gradient, is detached.

    Raises:
        BadInput: for an entry that cannot be copied, naming it.
    """
    try:
        return copy.deepcopy(memory)
    except Exception:  # whatever an object of a user's own raises
        return {name: _copy(name, value, owner) for name, value in memory.items()}


def _copy(name: str, value: Any, owner: str) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        return nested.unpack(bytes(packed(name, value, owner)))
