"""What a client keeps, and how an answer that fails or is abandoned leaves it: begin, keep, undo."""

from __future__ import annotations

import copy
import logging
from typing import Any

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


class AnswerState:
    """What a client keeps between answers, and within a round.

    Guarantees:
        - after :meth:`undo` both are as they were at :meth:`begin`;
        - what :meth:`keep` was told waits for a confirmation is undone by :meth:`abandon`, and by nothing
          once :meth:`confirm` was called.

    Args:
        deep: whether answers may change in place what they keep, so that it is copied before each.
    """

    def __init__(self, deep: bool) -> None:
        self.memory: dict[str, Any] = {}
        self.scratch: dict[str, Any] = {}
        self._deep = deep
        self._before: Before | None = None
        self._unconfirmed: tuple[str, Before] | None = None

    @property
    def unconfirmed(self) -> str:
        """The channel whose sum is not known to be complete; empty for none."""
        return self._unconfirmed[0] if self._unconfirmed is not None else ""

    def begin(self) -> None:
        """From here on, what the answer changes can be undone."""
        self._before = Before(self.memory, self.scratch, self._deep)

    def undo(self) -> None:
        """Undoes what changed since :meth:`begin`."""
        if self._before is not None:
            self._before.restore(self.memory, self.scratch)
            self._before = None

    def keep(self, unconfirmed: str = "") -> None:
        """Keeps what changed: for good, or until the sum of a channel is known to be complete.

        Args:
            unconfirmed: that channel.
        """
        before, self._before = self._before, None
        if unconfirmed and before is not None:
            self._unconfirmed = (unconfirmed, before)

    def confirm(self) -> None:
        """The sum is complete: its answer stays."""
        self._before = self._unconfirmed = None

    def abandon(self) -> None:
        """Undoes the answer that waits for its sum."""
        assert self._unconfirmed is not None
        self._unconfirmed[1].restore(self.memory, self.scratch)
        self._unconfirmed = None


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
