"""The default: all clients in this process, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from secure_fedgraph.client import Client
from secure_fedgraph.protocol import DirectCalls
from secure_fedgraph.protocol.transport import Lost


class InProcess(DirectCalls):
    """Clients in this process, reached as bytes through their doors; each keeps its memory itself."""

    def __init__(self, clients: Sequence[Client]) -> None:
        super().__init__({client.name: client.handle for client in clients})
        self._clients = clients
        self.lost: dict[str, Lost] = {}
        """Empty: the clients' process is this one."""

    @property
    def roster(self) -> Mapping[str, bytes]:
        """Clients' public identity keys, as the clients have them."""
        return self._clients[0].roster

    def save(self, label: str, committed: str) -> None:
        """Has every client keep its memory in its own folder."""
        for client in self._clients:
            client.save(label, committed)

    def load(self, label: str) -> None:
        """Has every client restore its memory."""
        for client in self._clients:
            client.load(label)

    def close(self) -> None:
        """Does nothing: no process was started."""
