"""Transports: they carry bytes to the clients and bring bytes back. They know nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, runtime_checkable

from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.protocol.meeting import answered

Answer = bytes | Exception
"""A reply as received, or the error in its place."""


class Lost(SecureFedGraphError):
    """A client that cannot be reached now. Its sentence is the reason where a run goes on without it."""


class Transport(Protocol):
    """Carries one request to each of some clients."""

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """Sends each client its request and returns the replies of those that answered."""
        ...


@runtime_checkable
class DropoutTransport(Transport, Protocol):
    """A transport that goes on without a client that refuses or fails."""

    def reach(self, requests: Mapping[str, bytes]) -> Mapping[str, Answer]:
        """As :meth:`exchange`, with the error in the place of the reply where a client refuses or fails."""
        ...


@runtime_checkable
class RosterTransport(Transport, Protocol):
    """A transport that knows the clients' public identity keys, from whoever gave them to the clients."""

    @property
    def roster(self) -> Mapping[str, bytes]:
        """Client -> public identity key."""
        ...


class DirectCalls:
    """Every client in this process, reached through its one method ``handle``.

    The clients still see message bytes only, the same bytes that a network would carry.

    Args:
        doors: each client's ``handle``.
    """

    def __init__(self, doors: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self._doors = dict(doors)

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """Calls the doors, which end one after the other."""
        replies = answered(self._calls(requests))
        return {name: reply for name, reply in replies if not isinstance(reply, Exception)}

    def reach(self, requests: Mapping[str, bytes]) -> dict[str, Answer]:
        """As :meth:`exchange`, with its error in the place of the reply where a client refuses or fails."""
        return dict(answered(self._calls(requests), (Exception,)))

    def _calls(self, requests: Mapping[str, bytes]) -> dict[str, Callable[[], bytes]]:
        return {name: partial(self._doors[name], request) for name, request in requests.items()}
