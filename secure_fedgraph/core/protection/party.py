"""A client's keys: its identity, the roster it was given, and its secrets of this run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from secure_fedgraph.core.crypto import Identity, Secret, verify


@dataclass
class Party(Secret):
    """What a client's carriers work with. It never leaves the process and is never checkpointed.

    Args:
        name: the client's name.
        identity: its signing key, older than the run.
        roster: every client's public signing key, from outside the protocol: the server did not hand it out.
        secrets: keys of this run, by carrier.
    """

    name: str
    identity: Identity
    roster: Mapping[str, bytes]
    secrets: dict[str, Any] = field(default_factory=dict, repr=False)

    def verify(self, name: str, signature: bytes, message: bytes) -> None:
        """Returns if the client of that name on this one's roster signed ``message``.

        Raises:
            HostileMessage: where it did not.
        """
        verify(self.roster[name], signature, message)
