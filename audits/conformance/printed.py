"""What a result's file says of its privacy, against what the ledger beside it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from secure_fedgraph.audits.record import Finding
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.spending.ledger import OF_ONE_GRAPH, Charge
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.privacy.spent import number, spent

ROUNDING = 1e-6
"""The share of an epsilon by which two compositions of the same charges may differ."""


def printed(result: RunResult, charges: Sequence[Charge], holders: int) -> Iterator[Finding]:
    """Every claim of privacy in a result that the run's charges do not bear out.

    An epsilon may be larger than the charges compose to.

    Args:
        result: as its file has it; each epsilon counts at the delta that is printed with it.
        charges: all of the run.
        holders: how many clients may hold the same node.
    """
    if charges and not result.privacy:  # which is shown as epsilon 0
        yield Finding("composed", "privacy", "the result's file has no epsilon, and the ledger has charges")
    graphs = [Unit.GRAPH] if any(charge.unit == Unit.GRAPH for charge in charges) else []
    missing = [str(one) for one in (*OF_ONE_GRAPH, *graphs) if one not in result.privacy]
    if charges and result.privacy and missing:
        yield Finding("composed", "privacy", f"the result's file has no epsilon for one {missing[0]}")
    for of, claim in result.privacy.items():
        if claim.readers and (unread := sorted(set(Reader) - set(claim.readers))):
            yield Finding("composed", f"privacy of one {of}", f"no epsilon is printed against {unread[0]}")
    for where, epsilon, delta, unit, readers, mine in _claims(result, charges):
        if not 0 < delta < 1:
            yield Finding("composed", where, f"delta {delta:g} is no probability at which anything composes")
            continue
        costs = spent(mine, delta, holders, (unit,))[unit]
        worst = max(costs[reader].epsilon for reader in readers)
        if float(epsilon) < worst * (1 - ROUNDING):
            yield Finding(
                "composed",
                where,
                f"epsilon {epsilon} is printed against {' and '.join(readers)}; the ledger's charges come to "
                f"{number(worst)}",
            )


Claimed = tuple[str, float | str, float, str, Iterable[Reader], Sequence[Charge]]
"""Where it is printed, epsilon, delta, unit, the readers that it holds against, and what it is of."""


def _claims(result: RunResult, charges: Sequence[Charge]) -> Iterator[Claimed]:
    everybody = tuple(Reader)
    for unit, claim in result.privacy.items():
        yield f"privacy of one {unit}", claim.epsilon, claim.delta, unit, everybody, charges
        for reader, epsilon in claim.readers.items():
            yield f"privacy of one {unit}", epsilon, claim.delta, unit, (reader,), charges
    budget = result.budget
    if budget is not None:
        yield "budget", budget.spent, budget.delta, budget.unit, (budget.against,), charges
    deltas = [claim.delta for claim in result.privacy.values()]
    for row in result.channels:
        of_it = [charge for charge in charges if charge.channel == row.name]
        if not of_it or not deltas:
            continue
        where, unit_of_it = f"channel {row.name}", row.epsilon_unit or of_it[0].unit
        if row.epsilon is not None:
            yield where, row.epsilon, min(deltas), unit_of_it, (Reader.SERVER,), of_it
        for reader, epsilon in row.epsilon_by_reader.items():
            yield where, epsilon, min(deltas), unit_of_it, (reader,), of_it
