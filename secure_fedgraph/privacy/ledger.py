"""The write-ahead privacy ledger: what each client has spent, against whom, before the reply exists."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import dp_accounting as dp
from dp_accounting.pld import PLDAccountant
from filelock import FileLock

from secure_fedgraph.errors import BadInput
from secure_fedgraph.privacy.protection import READERS

ACCOUNTANT = "pld"


@dataclass(frozen=True)
class Charge:
    """One upload's cost to one client's data.

    Args:
        client: whose budget pays.
        run, round, exchange, channel: which upload.
        unit: the unit of privacy that the noise was scaled to.
        relation: the neighbouring relation of that sensitivity.
        multipliers: reader -> noise multiplier; 0 where the reader sees the upload without noise.
    """

    client: str
    run: str
    round: int
    exchange: int
    channel: str
    unit: str
    relation: str
    multipliers: Mapping[str, float]


class Ledger:
    """Charges before anything is sent.

    Guarantees:
        - with a path, :meth:`charge` returns only after the line is on disk (fsync), written under a lock;
        - a torn last line, as a crash leaves it, is read as a charge without noise: never under-counted;
        - any other damage is refused.

    Args:
        path: the file, one JSON line a charge; in memory without one.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._charges: list[Charge] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def charge(self, charge: Charge) -> None:
        """Writes one charge ahead of the reply that it pays for."""
        self._charges.append(charge)
        if self.path is None:
            return
        line = json.dumps(asdict(charge)) + "\n"
        with FileLock(f"{self.path}.lock"), self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What was charged through this object."""
        return tuple(self._charges)


def read_ledger(path: Path) -> list[Charge]:
    """All charges of a ledger file.

    Raises:
        BadInput: for a file that is not there, or is damaged anywhere but in its last line.
    """
    if not path.is_file():
        raise BadInput(f"no ledger at {path}")
    lines = path.read_bytes().split(b"\n")
    torn = lines.pop()
    charges = []
    for number, line in enumerate(lines, start=1):
        try:
            charges.append(Charge(**json.loads(line)))
        except (ValueError, TypeError):
            raise BadInput(
                f"{path}, line {number} is damaged: a ledger is never repaired; keep it as evidence and "
                "treat the budget as spent"
            ) from None
    if torn:
        charges.append(Charge("unknown", "unknown", -1, -1, "torn line", "client", "zero-out", {}))
    return charges


def spent(charges: Iterable[Charge], delta: float) -> dict[str, dict[str, float]]:
    """What the most exposed client has spent: unit -> reader -> epsilon (``inf`` without noise).

    Each client's charges compose; the figure is the largest over clients. Units are never added to each
    other, and a unit that no charge speaks for is not in the answer.

    Args:
        charges: any clients' charges.
        delta: the failure probability.

    Raises:
        BadInput: for a delta outside (0, 1).
    """
    if not 0 < delta < 1:
        raise BadInput(f"delta {delta} must lie between 0 and 1; 1e-5 is usual")
    books: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: {r: [] for r in READERS})
    for charge in charges:
        for reader in READERS:
            books[charge.client, charge.unit][reader].append(charge.multipliers.get(reader, 0.0))
    worst: dict[str, dict[str, float]] = {}
    for (_, unit), readers in books.items():
        row = worst.setdefault(unit, dict.fromkeys(READERS, 0.0))
        for reader, multipliers in readers.items():
            row[reader] = max(row[reader], epsilon(multipliers, delta))
    return worst


def epsilon(multipliers: Iterable[float], delta: float) -> float:
    """Epsilon of Gaussian releases with these noise multipliers, composed (PLD accountant).

    >>> epsilon([0.0, 1.0], 1e-5)
    inf
    >>> round(epsilon([1.0], 1e-5), 2)
    4.38
    """
    counts: dict[float, int] = defaultdict(int)
    for multiplier in multipliers:
        counts[multiplier] += 1
    if any(multiplier <= 0 for multiplier in counts):
        return math.inf
    return _composed(tuple(sorted(counts.items())), delta)


@cache
def _composed(counts: tuple[tuple[float, int], ...], delta: float) -> float:
    accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for multiplier, times in counts:
        accountant.compose(dp.GaussianDpEvent(multiplier), times)
    return float(accountant.get_epsilon(delta))


def report(charges: Iterable[Charge], delta: float, readers: Iterable[str] = READERS) -> dict[str, Any]:
    """The ``privacy`` entry of a result: for each unit the strictest reader, the others beside it.

    Client units are accounted. Node and edge rows recur across uploads in ways that no clip bounds yet,
    so wherever a channel touches a client's data their epsilon is ``inf``.
    """
    charges = list(charges)
    relations = sorted({c.relation for c in charges}) or ["zero-out"]
    by_unit = spent(charges, delta)
    touched = sorted({c.channel for c in charges})
    entries: dict[str, Any] = {}
    for unit, row in by_unit.items():
        strictest = max(readers, key=lambda reader: row[reader])
        entries[unit] = {
            "epsilon": number(row[strictest]),
            "delta": delta,
            "against": strictest,
            "relation": ", ".join(relations),
            "accountant": ACCOUNTANT,
            "holders": 1,
            "computational": False,
            "readers": {reader: number(row[reader]) for reader in readers},
        }
    if touched:
        for unit in ("node", "edge"):
            entries.setdefault(
                unit,
                {
                    "epsilon": "inf",
                    "delta": delta,
                    "against": "server",
                    "relation": ", ".join(relations),
                    "accountant": "none",
                    "holders": 1,
                    "computational": False,
                    "readers": dict.fromkeys(readers, "inf"),
                    "reason": f"no {unit}-level accounting covers {', '.join(touched)} yet",
                },
            )
    return entries


def number(value: float) -> float | str:
    """JSON has no infinity: it is the string ``inf`` in every file.

    >>> number(math.inf), number(1.23456)
    ('inf', 1.2346)
    """
    return "inf" if math.isinf(value) else round(value, 4)
