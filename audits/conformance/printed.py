"""The epsilons that a result's file prints, against what the ledger beside it composes to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from secure_fedgraph import files
from secure_fedgraph.audits.record import Finding
from secure_fedgraph.errors import BrokenClaim
from secure_fedgraph.experiment.schema import RunResult, read
from secure_fedgraph.privacy.spending.ledger import TORN, Charge, number, read_ledger, spent
from secure_fedgraph.protocol.guarantee import Reader

ROUNDING = 1e-6
"""The share of an epsilon by which two compositions of the same charges may differ."""


def printed(result: RunResult, charges: Sequence[Charge], holders: int) -> Iterator[Finding]:
    """Every epsilon of a result that is less than the run's charges compose to; a larger one is allowed.

    Args:
        result: as its file has it; each epsilon counts at the delta that is printed with it.
        charges: all of the run.
        holders: how many clients may hold the same node.
    """
    if charges and not result.privacy:  # which is shown as epsilon 0
        yield Finding("composed", "privacy", "the result's file has no epsilon, and the ledger has charges")
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


def check_printed(folder: Path) -> None:
    """Before a page shows a run's result: where a ledger lies beside it, no epsilon is less than that.

    A ledger may hold other runs besides, and a result does not name its run: it has to fit one of them.

    Raises:
        BrokenClaim: naming the epsilon.
        BadInput: for a damaged ledger, or values that no run writes.
    """
    path, ledger = folder / "result.json", folder / "ledger.jsonl"
    if not (path.is_file() and ledger.is_file()):
        return
    try:
        value = json.loads(files.read(path))
    except (OSError, ValueError, RecursionError):
        return  # the page's own reader says what is wrong
    result = read(RunResult, value, path)
    told = (result.data.partition.holders, *(claim.holders for claim in result.privacy.values()))
    holders = max((one for one in told if type(one) is int), default=1)
    charges = read_ledger(ledger)
    runs = sorted({charge.run for charge in charges} - {TORN}) or [TORN]
    broken = [
        list(printed(result, [one for one in charges if one.counts_for(run)], max(holders, 1)))
        for run in runs
    ]
    if all(broken):
        finding = broken[-1][0]
        raise BrokenClaim(
            f"{path}, {finding.where}: {finding.what}. No page is made of it: put copies of both files back "
            "that are of one run"
        )
