"""Transports: they carry bytes to the clients and bring bytes back. They know nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class Transport(Protocol):
    """Carries one request to each of some clients."""

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """Sends each client its request and returns the replies of those that answered."""
        ...


class InProcess:
    """Every client in this process, reached through its one door.

    The clients still see message bytes only, the same bytes that a network would carry.

    Args:
        doors: each client's ``handle``.
    """

    def __init__(self, doors: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self._doors = dict(doors)

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """Calls the doors one after the other."""
        return {name: self._doors[name](request) for name, request in requests.items()}
