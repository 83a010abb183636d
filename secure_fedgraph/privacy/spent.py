"""What the ledger comes to: the epsilon of the most exposed client, at each unit, against each reader."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.core.accounting.epsilon import Spent
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader, Relation
from secure_fedgraph.core.spending.ledger import (
    HELD,
    OF_NODES,
    OF_ONE_GRAPH,
    Charge,
    Cost,
    composed,
    without_table,
)


def spent(
    charges: Iterable[Charge], delta: float, holders: int = 1, units: tuple[str, ...] = OF_ONE_GRAPH
) -> dict[str, dict[str, Spent]]:
    """What the most exposed client has spent: unit -> reader -> epsilon (``inf`` where nothing bounds it).

    Each client's charges compose; the figure is the largest over clients. An upload touches its client's
    data at every unit; :meth:`Cost.at` says what its noise is worth at each. Without charges epsilon is
    0. A charge whose client is not known, as a torn line's, counts for every client.

    Args:
        charges: any clients' charges.
        delta: the failure probability.
        holders: how many clients may hold the same node, or the same graph of a set.
        units: those to report.

    Raises:
        BadInput: for a delta outside (0, 1), or charges under two relations.
    """
    if not 0 < delta < 1:
        raise BadInput(f"delta {delta} must lie between 0 and 1; 1e-5 is usual")
    by_client: dict[str, Counter[Cost]] = defaultdict(Counter)
    charges = list(charges)
    for charge in charges:
        by_client[charge.client][charge.cost] += 1
    check_one_relation(cost for costs in by_client.values() for cost in costs)
    distinct = {frozenset(costs.items()) for costs in by_client.values()}  # most clients of a run
    return {
        unit: {
            reader: max(
                (composed(dict(costs), unit, reader, holders, delta) for costs in distinct),
                key=lambda figure: (figure.epsilon, figure.accountant == epsilon.NONE),  # none is worse
                default=Spent(0.0, epsilon.NONE),
            )
            for reader in Reader
        }
        for unit in units
    }


def check_one_relation(costs: Iterable[Cost]) -> None:
    """Checks that an epsilon can be about all of these costs.

    Raises:
        BadInput: for charges under two neighbouring relations.
    """
    relations = sorted({without_table(one.relation) for one in costs if one.releases or one.steps})
    if len(relations) > 1:
        raise BadInput(f"charges under {' and '.join(relations)} stand together, and an epsilon is about one")


def _why_infinite(charges: Iterable[Charge], unit: str, reader: str, holders: int, delta: float) -> str:
    """Which channels leave a unit unbounded, and how; where it takes all of them, those with noise for it."""
    of_channel: dict[str, set[Cost]] = defaultdict(set)
    for charge in charges:
        of_channel[charge.channel].add(charge.cost)
    by_reason: dict[str, list[str]] = defaultdict(list)
    noised = []
    for channel, costs in sorted(of_channel.items()):
        alone = [composed({cost: 1}, unit, reader, holders, delta) for cost in costs]
        reasons = {reason for one in alone if (reason := one.why_infinite("this unit"))}
        for reason in reasons:
            by_reason[reason].append(channel)
        noised += [channel] * any(one.epsilon for one in alone)
    if not by_reason:
        by_reason[Spent(math.inf, epsilon.RDP).why_infinite("this unit")] = noised
    return "; ".join(f"{', '.join(channels)}: {reason}" for reason, channels in sorted(by_reason.items()))


def report(
    charges: Iterable[Charge],
    delta: float,
    holders: int = 1,
    units: tuple[str, ...] = OF_ONE_GRAPH,
    server_scores: bool = False,
) -> dict[str, Any]:
    """The ``privacy`` entry of a result: for each unit the strictest reader, the others beside it.

    Args:
        holders: how many clients may hold the same node or graph: 1 where they share none, all of them in a
            vertical split.
        units: those to report.
        server_scores: whether the server is the referee. No guarantee then holds against it.
    """
    charges = list(charges)
    entries = {}
    for unit, by_charges in spent(charges, delta, holders, units).items():
        row = {**by_charges, Reader.SERVER: epsilon.WITHOUT} if server_scores else by_charges
        strictest = max(Reader, key=lambda reader, row=row: row[reader].epsilon)  # type: ignore[misc]
        worst, of = row[strictest], holders if unit in HELD else 1
        reasons = []
        if server_scores:
            reasons.append("the server is the referee, and reads without noise what it scores")
        elif not charges:
            reasons.append("nothing left a client but what a referee examined, outside the guarantee")
        if charges and math.isinf(by_charges[strictest].epsilon):
            reasons.append(_why_infinite(charges, unit, strictest, of, delta))
        entries[unit] = {
            "epsilon": number(worst.epsilon),
            "delta": delta,
            "against": strictest,
            "relation": (
                Relation.REPLACE  # a label is never absent: what protects it protects any two values
                if unit in OF_NODES
                else ", ".join(sorted({_relation(c, unit) for c in charges})) or Relation.ZERO_OUT
            ),
            "accountant": worst.accountant,
            "holders": of,
            "computational": math.isfinite(worst.epsilon) and any(c.computational for c in charges),
            "readers": {reader: number(value.epsilon) for reader, value in row.items()},
            "reason": "; ".join(reasons),
        }
    return entries


def _relation(charge: Charge, unit: str) -> str:
    """The relation of a charge's figure: for mashes and their own unit, on the frozen table of places."""
    return charge.relation if unit == charge.unit else without_table(charge.relation)


def number(value: float) -> float | str:
    """JSON has no infinity: it is the string ``inf`` in every file. Rounded up, so never less than was spent.

    >>> number(math.inf), number(1.23456)
    ('inf', 1.2346)
    """
    return "inf" if math.isinf(value) else math.ceil(value * 10_000) / 10_000
