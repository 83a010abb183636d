"""Clients that a run reaches and did not make: each on its owner's machine, with its own ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.protocol.transport import Answer


class Reached(Protocol):
    """The way to such clients, as a session uses it."""

    @property
    def roster(self) -> Mapping[str, bytes]:
        """Client -> public identity key."""
        ...

    @property
    def common(self) -> str:
        """A digest of what all clients were given when the run began; empty where they were given nothing."""
        ...

    @property
    def present(self) -> tuple[str, ...]:
        """The clients that can be reached now, in the order of the federation's names."""
        ...

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """Sends each client its request and returns the replies; raises what one refuses with."""
        ...

    def reach(self, requests: Mapping[str, bytes]) -> Mapping[str, Answer]:
        """As :meth:`exchange`, with the error in the place of the reply where a client gives none."""
        ...

    def save(self, label: str, committed: str) -> None:
        """Has every client that can be reached keep its memory."""
        ...

    def load(self, label: str) -> None:
        """Has every client restore its memory."""
        ...

    def charges(self) -> Sequence[Charge]:
        """What the clients charged for this run, as each of them reports it."""
        ...

    def close(self) -> None:
        """Lets go of the clients; they go on."""
        ...


Connect = Callable[[str, int, str], Reached]
"""(run, exchange number up to which nothing is answered, label to load or nothing) -> the way."""
