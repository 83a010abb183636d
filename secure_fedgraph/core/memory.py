"""A client's memory as it was before an answer, restored where the answer is undone."""

from __future__ import annotations

import copy
import logging
from typing import Any, TypeVar

from secure_fedgraph.core import nested, wire
from secure_fedgraph.core.errors import BadInput

Copied = TypeVar("Copied")

LASTING = ("drawn ", "frozen", "released ")
"""Name prefixes of entries that are never undone: what was randomised or sampled once for the run, and what
counts releases. An upload that a client takes for abandoned may have been opened by others."""


class Before:
    """Memory and scratch as they were.

    Guarantees:
        - going back undoes what an answer added, replaced, removed or, with ``deep``, changed in place;
        - entries whose names begin with :data:`LASTING` stay as they are.
    Needs:
        - without ``deep``: answers that replace what they keep and change none of it in place, as those of
          this package do; then nothing is copied.

    Args:
        memory, scratch: as they are now.
        deep: copy what they hold.
    """

    def __init__(self, memory: dict[str, Any], scratch: dict[str, Any], deep: bool = False) -> None:
        self._memory = _copied(memory) if deep else dict(memory)
        self._scratch = _copied(scratch) if deep else dict(scratch)

    def restore(self, memory: dict[str, Any], scratch: dict[str, Any]) -> None:
        """Restores both, in place. Values of the scratch that cannot be restored are ended (``abandon``)."""
        # a key of an own algorithm's may be no text: where memory is saved, it is refused by name
        lasting = {n: value for n, value in memory.items() if isinstance(n, str) and n.startswith(LASTING)}
        memory.clear()
        memory.update(self._memory | lasting)
        scratch.clear()
        scratch.update(self._scratch)
        for value in scratch.values():
            if callable(end := getattr(value, "abandon", None)):
                end()


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


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    copies = {}
    for name, value in values.items():
        try:
            copies[name] = copy.deepcopy(value)
        except Exception as error:  # such as a live autograd graph, which could not be kept either
            logging.getLogger("secure_fedgraph.client").info(
                "%r cannot be copied (%s): if an answer fails, it stays as that left it", name, error
            )
            copies[name] = value
    return copies
