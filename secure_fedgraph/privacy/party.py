"""A client's keys: its identity, the roster it was given, and its secrets of this run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from secure_fedgraph.crypto import Identity, verify

REMEMBERED = 2**13
"""Signatures that a simulation remembers as valid: a few megabytes."""


@dataclass
class Party:
    """What a client's carriers work with. It never leaves the process and is never checkpointed.

    Args:
        name: the client's name.
        identity: its signing key, older than the run.
        roster: every client's public signing key, from outside the protocol: the server did not hand it out.
        secrets: keys of this run, by carrier.
        good: (key, signature, message) that were verified, shared by clients that are simulated in one
            process: whether a signature is good does not depend on who asks, and two hundred clients ask two
            hundred times. A client in a process of its own has None and works each out itself.
    """

    name: str
    identity: Identity
    roster: Mapping[str, bytes]
    secrets: dict[str, Any] = field(default_factory=dict, repr=False)
    good: set[tuple[bytes, bytes, bytes]] | None = field(default=None, repr=False)

    def verify(self, name: str, signature: bytes, message: bytes) -> None:
        """Returns if the client of that name on this one's roster signed ``message``.

        Raises:
            HostileMessage: where it did not.
        """
        claim = self.roster[name], signature, message
        if self.good is not None and claim in self.good:
            return
        verify(*claim)
        if self.good is not None:
            if len(self.good) >= REMEMBERED:
                self.good.clear()
            self.good.add(claim)

    def __reduce__(self) -> Any:
        raise TypeError("a party holds keys and is not copied or stored")
