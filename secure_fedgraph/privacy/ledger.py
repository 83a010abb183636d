"""The write-ahead privacy ledger: what each client has spent, against whom, before the reply exists."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dp_accounting as dp
from filelock import FileLock

from secure_fedgraph.errors import BadInput
from secure_fedgraph.privacy.protection import READERS

ACCOUNTANT = "exact-gaussian"
"""The exact curve of composed Gaussian releases (not Opacus' GaussianAccountant, which under-reports)."""
_NO_NOISE = 1e6
"""Epsilon is mu**2 / 2 and more: beyond this the search for it overflows, and nothing is protected."""
UNITS = ("client", "node", "edge")
OF_GRAPH_SETS = ("client", "graph", "node", "edge")
"""The units of a graph that owners hold in pieces, largest first."""


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

    Raises:
        BadInput: for a file that ends in a torn line.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._charges: list[Charge] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
                raise BadInput(
                    f"{path} ends in a torn line, as a crash leaves it: keep it as evidence and charge "
                    "to another file; adding to it would make it unreadable"
                )

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

    @classmethod
    def go_on(cls, path: Path) -> Ledger:
        """The ledger of a run that was killed, to charge on.

        A torn last line is kept beside it in ``ledger.torn`` and counts as a charge without noise.

        Raises:
            BadInput: for any other damage.
        """
        if path.is_file():
            charges = read_ledger(path)  # refuses any other damage
            whole, _, torn = path.read_bytes().rpartition(b"\n")
            if torn:
                with path.with_suffix(".torn").open("ab") as evidence:
                    evidence.write(torn + b"\n")
                    os.fsync(evidence.fileno())
                counted = json.dumps(asdict(charges[-1])).encode() + b"\n"
                draft = path.with_suffix(".draft")
                with draft.open("wb") as file:
                    file.write((whole + b"\n" if whole else b"") + counted)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, path)
        return cls(path)

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
            charges.append(_charge(json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            raise BadInput(
                f"{path}, line {number} is damaged: a ledger is never repaired; keep it as evidence and "
                "treat the budget as spent"
            ) from None
    if torn:
        charges.append(Charge("unknown", "unknown", -1, -1, "torn line", "client", "zero-out", {}))
    return charges


def _charge(entry: Any) -> Charge:
    charge = Charge(**entry)
    if not (
        all(
            type(text) is str
            for text in (charge.client, charge.run, charge.channel, charge.unit, charge.relation)
        )
        and type(charge.round) is type(charge.exchange) is int
        and all(type(charge.multipliers[reader]) in (int, float) for reader in charge.multipliers)
    ):
        raise ValueError("a charge of other types")
    return charge


def spent(charges: Iterable[Charge], delta: float) -> dict[str, dict[str, float]]:
    """What the most exposed client has spent: unit -> reader -> epsilon (``inf`` without noise).

    Each client's charges compose; the figure is the largest over clients. An upload touches its client's
    data at every unit, and its noise speaks for the unit that it was scaled to: at the others it counts as
    without noise. One thing follows: where owners hold whole graphs, a graph is one client's alone, and
    whatever it changes in that client's upload stays within the clip, from anywhere to anywhere, which is
    twice the way to zero. So noise scaled to a client's zeroed upload counts half for a graph. No charge at
    all is an epsilon of 0.

    Args:
        charges: any clients' charges.
        delta: the failure probability.

    Raises:
        BadInput: for a delta outside (0, 1).
    """
    if not 0 < delta < 1:
        raise BadInput(f"delta {delta} must lie between 0 and 1; 1e-5 is usual")
    by_client: dict[str, list[Charge]] = defaultdict(list)
    charges = list(charges)
    units = OF_GRAPH_SETS if any(charge.unit == "graph" for charge in charges) else UNITS
    for charge in charges:
        by_client[charge.client].append(charge)
    return {
        unit: {
            reader: max((_of_client(c, unit, reader, delta) for c in by_client.values()), default=0.0)
            for reader in READERS
        }
        for unit in units
    }


def _of_client(charges: Iterable[Charge], unit: str, reader: str, delta: float) -> float:
    return epsilon((_multiplier(c, unit, reader) for c in charges), delta)


def _multiplier(charge: Charge, unit: str, reader: str) -> float:
    """The noise multiplier that a charge is worth at a unit, against a reader."""
    found = charge.multipliers.get(reader, 0.0)
    if (charge.unit, unit) == ("client", "graph"):
        return found if charge.relation == "replace" else found / 2
    return found if charge.unit == unit else 0.0


def epsilon(multipliers: Iterable[float], delta: float) -> float:
    """Epsilon of Gaussian releases with these noise multipliers, composed, exactly.

    Gaussian releases compose to one Gaussian release: the inverse squares of the multipliers add up. The
    numerical accountant agrees and needs minutes and gigabytes where the noise is small; it is for
    subsampling, which no recipe does yet.

    References:
        Dong, Roth, Su, Gaussian Differential Privacy, 2022, corollary 3.3; Balle and Wang, ICML 2018,
        theorem 8.

    >>> epsilon([0.0, 1.0], 1e-5)
    inf
    >>> round(epsilon([1.0], 1e-5), 2)
    4.38
    """
    known = list(multipliers)
    if not all(multiplier > 0 for multiplier in known):
        return math.inf
    mu = math.hypot(*(1 / multiplier for multiplier in known))
    if mu > _NO_NOISE:
        return math.inf
    return float(dp.get_epsilon_gaussian(1 / mu, delta)) if mu else 0.0


def report(charges: Iterable[Charge], delta: float, holders: int = 1) -> dict[str, Any]:
    """The ``privacy`` entry of a result: for each unit the strictest reader, the others beside it.

    Args:
        holders: how many clients may hold the same node: 1 where they share none, all of them in a vertical
            split.

    Client units are accounted, and graphs where every channel bounds what one of them moves. Node and edge
    rows recur across uploads in ways that no clip bounds yet, so wherever a channel touches a client's data
    their epsilon is ``inf``.
    """
    charges = list(charges)
    touched = {c.channel for c in charges}
    entries = {}
    for unit, row in spent(charges, delta).items():
        strictest = max(READERS, key=lambda reader, row=row: row[reader])  # type: ignore[misc]
        reason = "nothing left a client but what a referee examined, outside the guarantee"
        if touched:
            bare = {c.channel for c in charges if not _multiplier(c, unit, strictest) > 0} or touched
            reason = f"{', '.join(sorted(bare))}: no noise scaled to this unit" * math.isinf(row[strictest])
        entries[unit] = {
            "epsilon": number(row[strictest]),
            "delta": delta,
            "against": strictest,
            "relation": ", ".join(sorted({c.relation for c in charges})) or "zero-out",
            "accountant": ACCOUNTANT,
            "holders": 1 if unit == "client" else holders,
            "computational": False,
            "readers": {reader: number(value) for reader, value in row.items()},
            "reason": reason,
        }
    return entries


def number(value: float) -> float | str:
    """JSON has no infinity: it is the string ``inf`` in every file. Rounded up, never to less than was spent.

    >>> number(math.inf), number(1.23456)
    ('inf', 1.2346)
    """
    return "inf" if math.isinf(value) else math.ceil(value * 10_000) / 10_000
