"""The history of a run: one running digest of everything that clients were given, the same for all of them.

The masks and tokens of sums are bound to its head. So clients whose histories differ make masks that do not
cancel and tokens that do not open, however many exchanges ago one of them was given something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.message import CARRIER, digest_alike

DIGEST = 32
MOST_MISSED = 2**16
"""Exchanges that one request may report as missed; checked before any is added."""


@dataclass(frozen=True)
class Exchange:
    """One exchange, as it stands in the history.

    Args:
        number: of the exchange.
        round, channel: where it belongs.
        digest: of the cohort, and of what each client of it was given.
    """

    number: int
    round: int
    channel: str
    digest: bytes


class History:
    """The exchanges of a run in which clients are given something alike, in order, as one digest.

    A client adds what it was given itself, unless its answer failed. The next request reports to it the
    exchanges that it did not answer, and those whose sums were abandoned. The client ignores a reported
    exchange if it has already recorded that number or a higher one.

    Guarantees:
        - two parties have the same head only if the same cohorts were given the same on the same channels,
          in the same order, under the same numbers;
        - exchange numbers rise and rounds do not fall;
        - a channel of ``once`` is used once a round, whoever was asked.

    Args:
        run: the run's public name. A resumed run begins a new history, as it begins with new keys.
        common: a digest of what all parties must have alike before the first exchange.
        once: channels that give something once a round.
    """

    def __init__(self, run: str, once: Collection[str] = (), common: str = "") -> None:
        self.last = -1
        start = b"history of the run " + run.encode()
        self._head = hashlib.sha256(start + (b" on " + common.encode() if common else b"")).digest()
        self._round = 0
        self._once = frozenset(once)
        self._used: frozenset[str] = frozenset()

    @property
    def head(self) -> str:
        """The digest so far, in hexadecimal."""
        return self._head.hex()

    def add(self, exchange: Exchange) -> None:
        """One more exchange.

        Raises:
            HostileMessage: for a number that is not above the last one, an earlier round, or a second
                exchange of the round on a channel that gives something once.
        """
        if exchange.number <= self.last or exchange.round < self._round:
            raise HostileMessage(
                f"exchange {exchange.number} of round {exchange.round} came after exchange {self.last} of "
                f"round {self._round}: numbers of exchanges rise, and those of rounds do not fall"
            )
        used = self._used if exchange.round == self._round else frozenset()
        if exchange.channel in used:
            raise HostileMessage(
                f"channel {exchange.channel!r} gives everybody the same once a round, and round "
                f"{exchange.round} has a second exchange on it"
            )
        self._used = used | ({exchange.channel} & self._once)
        self.last, self._round = exchange.number, exchange.round
        self._head = hashlib.sha256(self._head + _statement(exchange)).digest()

    def catch_up(self, missed: Iterable[Exchange], before: int, channels: Collection[str]) -> None:
        """Adds the exchanges that this party was not asked in, as the server reports them.

        Args:
            missed: as reported; those with numbers that this history has passed change nothing.
            before: the number of the exchange whose request reports them.
            channels: those on which all clients are given the same.

        Raises:
            HostileMessage: as :meth:`add`, and for other channels or numbers that are not below.
        """
        for exchange in missed:
            if exchange.number <= self.last:
                continue
            if exchange.number >= before or exchange.channel not in channels:
                raise HostileMessage(
                    f"exchange {exchange.number} on {exchange.channel[:64]!r} was reported as missed with "
                    f"exchange {before}: reported are earlier ones, on channels that give something alike"
                )
            self.add(exchange)


def exchange_of(number: int, round: int, channel: str, cohort: tuple[str, ...], given: wire.Tree) -> Exchange:
    """An exchange in which a cohort was given something, as it came out of a message."""
    cohort_digest = hashlib.sha256("\n".join(cohort).encode()).digest()
    return Exchange(
        number, round, channel, hashlib.sha256(cohort_digest + bytes.fromhex(given_digest(given))).digest()
    )


def given_digest(given: wire.Tree) -> str:
    """SHA-256 of what was given, as it came out of a message: the same for all who were given the same."""
    return digest_alike(wire.pack(given))


def split_given_and_carrier(tree: wire.Tree) -> tuple[wire.Tree, wire.Tree]:
    """What an algorithm's server gave in a request, and what a carrier added."""
    given = {name: value for name, value in tree.items() if not name.startswith(CARRIER)}
    return given, {name: value for name, value in tree.items() if name.startswith(CARRIER)}


def to_bytes(missed: Iterable[Exchange]) -> bytes:
    """The exchanges as a request carries them; no bytes where there are none."""
    listed = list(missed)
    if not listed:
        return b""
    return wire.encode(
        {
            "numbers": np.array([one.number for one in listed], dtype="<i8"),
            "rounds": np.array([one.round for one in listed], dtype="<i8"),
            "channels": "\n".join(one.channel for one in listed),
            "digests": np.frombuffer(b"".join(one.digest for one in listed), np.uint8).reshape(-1, DIGEST),
        }
    )


def from_bytes(raw: bytes | memoryview) -> list[Exchange]:
    """The inverse.

    Raises:
        HostileMessage: for anything else, or more than :data:`MOST_MISSED`.
    """
    if not len(raw):
        return []
    tree = wire.decode(raw, views=True)
    numbers, rounds, digests = (tree.get(key) for key in ("numbers", "rounds", "digests"))
    channels = tree.get("channels")
    count = len(numbers) if isinstance(numbers, np.ndarray) and numbers.ndim == 1 else 0
    readable = all(
        isinstance(value, np.ndarray) and value.dtype == dtype and value.shape == shape
        for value, dtype, shape in (
            (numbers, np.dtype("<i8"), (count,)),
            (rounds, np.dtype("<i8"), (count,)),
            (digests, np.dtype("u1"), (count, DIGEST)),
        )
    )
    if not readable or not 0 < count <= MOST_MISSED or not isinstance(channels, str) or len(tree) != 4:
        raise HostileMessage(
            f"a request reports missed exchanges that cannot be read, or above {MOST_MISSED}"
        )
    names = channels.split("\n")
    if len(names) != count:
        raise HostileMessage(f"a request reports {count} missed exchanges on {len(names)} channels")
    assert isinstance(numbers, np.ndarray)
    assert isinstance(rounds, np.ndarray)
    assert isinstance(digests, np.ndarray)
    rows = zip(numbers.tolist(), rounds.tolist(), names, digests, strict=True)
    return [Exchange(number, round, name, row.tobytes()) for number, round, name, row in rows]


def _statement(exchange: Exchange) -> bytes:
    place = wire.encode({"exchange": exchange.number, "round": exchange.round, "channel": exchange.channel})
    return hashlib.sha256(place).digest() + exchange.digest
