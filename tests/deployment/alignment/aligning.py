"""Owners who align their rows, and a courier that reads, changes and replays what it carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

pytest.importorskip("private_set_intersection", reason="the align extra brings openmined-psi")

from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.deployment.alignment import Alignment, Hub, Letter, Member, Side, Terms, relay
from secure_fedgraph.deployment.alignment import side as side_module

NAMES = ("bank", "phone", "shop")
IDENTITIES = {name: Identity.generate() for name in NAMES}
FEDERATION = bytes(range(32))


def terms(names: Sequence[str] = NAMES, **other: object) -> Terms:
    """Terms of a federation whose owners are always the same people."""
    given = {
        "federation": FEDERATION,
        "alignment": "alignment-1",
        "parties": {name: IDENTITIES[name].public for name in names},
        "rows_at_most": 128,
        **other,
    }
    return Terms(**given)  # type: ignore[arg-type]


def numbered(*numbers: int) -> list[str]:
    """Names that are easy to find in a transcript."""
    return [f"customer-{number:05d}" for number in numbers]


TABLES = {
    "bank": numbered(*range(40)),
    "phone": numbered(*range(50, 10, -1)),
    "shop": numbered(*range(5, 30), 99, 98),
}
COMMON = set(numbered(*range(11, 30)))


def side(name: str, rows: Sequence[str], agreed: Terms, kind: type[Side] | None = None) -> Side:
    """One owner; ``kind`` is a liar's class."""
    if name == agreed.hub:
        return (kind or Hub)(agreed, IDENTITIES[name], rows)  # type: ignore[call-arg]
    return (kind or Member)(agreed, IDENTITIES[name], rows, name)


def sides(
    tables: Mapping[str, Sequence[str]] = TABLES,
    agreed: Terms | None = None,
    liars: Mapping[str, type[Side]] | None = None,
) -> dict[str, Side]:
    """All owners."""
    agreed = agreed or terms(tuple(tables))
    return {name: side(name, rows, agreed, (liars or {}).get(name)) for name, rows in tables.items()}


Change = Callable[[Letter], Sequence[Letter]]


@dataclass
class Courier:
    """The server.

    Args:
        owners: by name.
        change: a letter -> what is delivered in its place.
    """

    owners: Mapping[str, Side]
    change: Change = lambda letter: [letter]
    carried: list[Letter] = field(default_factory=list)

    def run(self) -> dict[str, Alignment | None]:
        """One alignment, as far as it comes."""
        relay(tuple(self.owners), self.exchange)
        return {name: owner.result for name, owner in self.owners.items()}

    def exchange(self, waiting: Mapping[str, Sequence[Letter]]) -> dict[str, list[Letter]]:
        written: dict[str, list[Letter]] = {}
        for name, letters in waiting.items():
            written[name] = [] if letters else self.owners[name].start()
            for letter in letters:
                self.carried.append(letter)
                for delivered in self.change(letter):
                    written[name] += self.owners[name].receive(delivered)
        return written


def aligned(
    tables: Mapping[str, Sequence[str]] = TABLES, **other: object
) -> tuple[dict[str, Alignment], list[Letter]]:
    """An honest alignment, and what the server carried."""
    courier = Courier(sides(tables, terms(tuple(tables), **other)))
    return {name: found for name, found in courier.run().items() if found is not None}, courier.carried


def opened_by(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """From now on, what every seal closes, in the clear."""
    plain: list[bytes] = []
    real = side_module.seal

    def noting(key: bytes, plaintext: bytes, context: bytes) -> bytes:
        plain.append(plaintext)
        return real(key, plaintext, context)

    monkeypatch.setattr(side_module, "seal", noting)
    return plain
