"""Transports: they carry bytes to the clients and bring bytes back. They know nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from secure_fedgraph.core.errors import SecureFedGraphError

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
        """Calls the doors one after the other."""
        return {name: self._doors[name](request) for name, request in requests.items()}

    def reach(self, requests: Mapping[str, bytes]) -> dict[str, Answer]:
        """As :meth:`exchange`, with its error in the place of the reply where a client refuses or fails."""
        answers: dict[str, Answer] = {}
        for name, request in requests.items():
            try:
                answers[name] = self._doors[name](request)
            except Exception as refusal:
                answers[name] = refusal
        return answers
