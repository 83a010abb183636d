"""What a result's file says of its privacy, against what the ledger beside it comes to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from secure_fedgraph.audits.record import Finding
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, BrokenClaim
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.spending.ledger import HELD, OF_ONE_GRAPH, TORN, Charge, read_ledger
from secure_fedgraph.experiment.schema import RunResult, read
from secure_fedgraph.privacy.spent import number, report, spent

RUN = "secure-fedgraph/run/1"
ROUNDING = 1e-6
"""The share of an epsilon by which two compositions of the same charges may differ."""


def printed(result: RunResult, charges: Sequence[Charge], holders: int) -> Iterator[Finding]:
    """Every claim of privacy in a result that the run's charges do not bear out.

    An epsilon may be larger than the charges compose to. Relation, holders, accountant and whether it
    rests on masks are those of the charges.

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
    for where, key, said, due in _beside(result, charges, holders):
        if said != due:
            yield Finding("composed", where, f"{key} is {said!r}; by the ledger's charges it is {due!r}")


def _beside(
    result: RunResult, charges: Sequence[Charge], holders: int
) -> Iterator[tuple[str, str, object, object]]:
    """What stands beside the epsilons: where, the key, what is said, and what it is by the charges."""
    budget = result.budget
    for unit, claim in result.privacy.items():
        if not (charges and 0 < claim.delta < 1):
            continue
        due, where = report(charges, claim.delta, holders, (unit,))[unit], f"privacy of one {unit}"
        yield where, "relation", claim.relation, due["relation"]
        yield where, "holders", claim.holders, due["holders"]
        if math.isfinite(float(claim.epsilon)):
            masked = any(charge.computational for charge in charges)
            yield where, "computational", claim.computational, masked
            yield where, "reason", claim.reason, ""
        if claim.epsilon == due["epsilon"]:  # another accountant may have given a larger one
            yield where, "accountant", claim.accountant, due["accountant"]
        if budget is not None and budget.unit == unit:
            yield "budget", "relation", budget.relation, due["relation"]
    if budget is not None:
        for key in ("epsilon", "delta", "unit", "against"):
            if key in result.config:
                yield "budget", key, getattr(budget, key), result.config[key]


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


def check_printed(folder: Path, shared: Path | None = None) -> str:
    """Before a page shows a run's result: compares what it says of its privacy with the run's ledger.

    A ledger may hold other runs besides, and a result does not name its run: it has to fit one of them.

    Args:
        folder: of the run.
        shared: the ledger that the run charged, where it is none of its own folder. No file is opened because
            another names it.

    Returns:
        Why nothing was compared; empty where it was, and where the folder holds no run.

    Raises:
        BrokenClaim: naming the claim.
        BadInput: for a damaged ledger, or values that no run writes.
    """
    path, ledger = folder / "result.json", shared or folder / "ledger.jsonl"
    try:
        value = json.loads(files.read(path))
    except (OSError, ValueError, RecursionError):
        value = None  # the page's own reader says what is wrong
    if not isinstance(value, dict) or value.get("schema") != RUN or "seeds" in value:
        if shared is not None:
            raise BadInput(
                f"--ledger {shared}: {folder} holds no result of one run to compare it with; drop it"
            )
        return ""
    result = read(RunResult, value, path)
    named = result.config.get("ledger")
    if shared is not None:
        check_shared(folder, shared, named is not None)
    if not ledger.is_file():
        if named is not None:
            return f"name the ledger that the run shared, {str(named)[:200]!r}, by --ledger"
        return f"{ledger} is missing" if any(row.messages for row in result.channels) else ""
    charges = read_ledger(ledger)
    if not charges and any(row.messages for row in result.channels):
        return f"{ledger} holds no charge"
    runs = sorted({charge.run for charge in charges} - {TORN}) or [TORN]
    holders = _holders(result)
    broken = [list(printed(result, [one for one in charges if one.counts_for(run)], holders)) for run in runs]
    if all(broken):
        finding = broken[-1][0]
        raise BrokenClaim(
            f"{path}, {finding.where}: {finding.what}. No page is made of it: put copies of both files back "
            "that are of one run"
        )
    return ""


def check_shared(folder: Path, ledger: Path, shares: bool) -> None:
    """Checks that a ledger which is named for a run can be that run's.

    Args:
        folder: of the run.
        ledger: that was named.
        shares: whether the run shared one.

    Raises:
        BadInput: where it did not, or the ledger is no file.
    """
    if not shares:
        raise BadInput(f"--ledger {ledger}: the run in {folder} charged a ledger of its own; drop it")
    if not ledger.is_file():
        raise BadInput(f"--ledger {ledger} is no file: give the ledger that the run in {folder} charged")


def _holders(result: RunResult) -> int:
    """How many clients may hold the same node, by a result's facts about its data."""
    if not result.federated:
        return 1
    said = [
        result.data.partition.holders,
        *(one.holders for unit, one in result.privacy.items() if unit in HELD),
    ]
    return max((one for one in said if type(one) is int), default=1)
