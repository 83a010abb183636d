"""A client's memory as it was before an answer, to go back to where the answer comes to nothing."""

from __future__ import annotations

import copy
import logging
from typing import Any

LASTING = ("drawn ", "frozen", "released ")
"""What the names of entries begin with that never go back: what was drawn once and for all, and what counts
releases. An upload that a client takes for abandoned may have been opened by others."""


class Before:
    """Memory and scratch as they were.

    Guarantees:
        - going back undoes what an answer added, replaced, removed or, with ``deep``, changed in place;
        - entries of :data:`LASTING` names stay as they are.
    Needs:
        - without ``deep``: answers that replace what they keep and change none of it in place, as those of
          this package do; then nothing is copied.

    Args:
        memory, scratch: as they are now.
        deep: copy what they hold.
    """

    def __init__(self, memory: dict[str, Any], scratch: dict[str, Any], deep: bool) -> None:
        self._memory = _copied(memory) if deep else dict(memory)
        self._scratch = _copied(scratch) if deep else dict(scratch)

    def go_back(self, memory: dict[str, Any], scratch: dict[str, Any]) -> None:
        """Puts both back, in place. What lives in the scratch and cannot go back ends (``abandon``)."""
        lasting = {name: value for name, value in memory.items() if name.startswith(LASTING)}
        memory.clear()
        memory.update(self._memory | lasting)
        scratch.clear()
        scratch.update(self._scratch)
        for value in scratch.values():
            if callable(end := getattr(value, "abandon", None)):
                end()


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    copies = {}
    for name, value in values.items():
        try:
            copies[name] = copy.deepcopy(value)
        except Exception as error:  # a live autograd graph, say: nothing that could be kept either
            logging.getLogger("secure_fedgraph.client").info(
                "%r cannot be copied (%s): if an answer fails, it stays as that left it", name, error
            )
            copies[name] = value
    return copies
