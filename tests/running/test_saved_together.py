"""Clients of one process write their memory at the same time: an error of one is an error of the round."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from secure_fedgraph.backends.in_process import AT_ONCE, InProcess
from secure_fedgraph.client import Client


class _Writes:
    """Stands in for a client: all of them wait until as many others write."""

    def __init__(
        self, number: int, together: threading.Barrier, error: type[Exception] | None = None
    ) -> None:
        self.name, self.handle = f"owner-{number}", None
        self.saved: list[tuple[str, str]] = []
        self._together, self._error = together, error

    def save(self, label: str, committed: str) -> None:
        self._together.wait(timeout=20)
        if self._error is not None:
            raise self._error("full")
        self.saved.append((label, committed))


def _clients(count: int, **errors: Any) -> list[Any]:
    together = threading.Barrier(count)
    return [_Writes(number, together, errors.get(f"owner_{number}")) for number in range(count)]


def test_clients_write_at_the_same_time_and_all_of_them():
    clients = _clients(AT_ONCE)
    InProcess(cast(list[Client], clients)).save("00002-aaaaaaaa", "00001-aaaaaaaa")
    assert [client.saved for client in clients] == [[("00002-aaaaaaaa", "00001-aaaaaaaa")]] * AT_ONCE


def test_an_error_of_one_is_raised_after_the_others_have_written():
    clients = _clients(3, owner_1=OSError)
    with pytest.raises(OSError, match="full"):
        InProcess(cast(list[Client], clients)).save("00002-aaaaaaaa", "")
    assert [len(client.saved) for client in clients] == [1, 0, 1]
