"""The default: all clients in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

from secure_fedgraph.client import Client
from secure_fedgraph.protocol import DirectCalls
from secure_fedgraph.protocol.transport import Answer

AT_ONCE = 8
"""Clients that write at a time."""
OneExchange = Callable[[], AbstractContextManager[None]]
"""Opens what is closed once an exchange's charges are on disk (:meth:`Ledger.exchange`)."""


class InProcess(DirectCalls):
    """Clients in this process, reached as bytes through their doors; each keeps its memory itself.

    Guarantees:
        - no reply of an exchange is handed on before ``one_exchange`` is closed, hence before every charge
          of that exchange is on disk: one fsync for all of them.

    Args:
        clients: those of the run.
        one_exchange: of the ledger where they charge; by default each charge is on disk when it is made.
    """

    def __init__(self, clients: Sequence[Client], one_exchange: OneExchange = nullcontext) -> None:
        super().__init__({client.name: client.handle for client in clients})
        self._clients = clients
        self._one_exchange = one_exchange

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """Calls the doors, which end one after the other."""
        with self._one_exchange():
            return super().exchange(requests)

    def reach(self, requests: Mapping[str, bytes]) -> dict[str, Answer]:
        """The same, with its error in the place of the reply where a client refuses or fails."""
        with self._one_exchange():
            return super().reach(requests)

    @property
    def roster(self) -> Mapping[str, bytes]:
        """Clients' public identity keys, as the clients have them."""
        return self._clients[0].roster

    def save(self, label: str, committed: str) -> None:
        """Has every client keep its memory in its own folder; they wait for the disk together."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for _ in threads.map(lambda client: client.save(label, committed), self._clients):
                pass

    def load(self, label: str) -> None:
        """Has every client restore its memory."""
        for client in self._clients:
            client.load(label)

    def close(self) -> None:
        """Does nothing: no process was started."""
