"""What would leave a silo under a federation's file, and what that costs: known before anything is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from secure_fedgraph.core.accounting.epsilon import WITHOUT, Spent
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.core.spending.ledger import Charge, Cost, composed
from secure_fedgraph.deployment.terms import Terms
from secure_fedgraph.privacy.planning import charged
from secure_fedgraph.privacy.spent import check_one_relation
from secure_fedgraph.protocol.transcript import REFEREE
from secure_fedgraph.running.planned_noise import occurrences_in, uses_in


@dataclass(frozen=True)
class Leaving:
    """One channel of the whole run.

    Args:
        channel: its name.
        to: who reads it.
        reveal: what the reader learns: the sum, each upload, or nothing.
        protection: in words.
        uploads: how many leave each silo in the whole run, at most; what the referee asks is not counted.
    """

    channel: str
    to: str
    reveal: str
    protection: str
    uploads: int


@dataclass(frozen=True)
class DryRun:
    """What a silo learns before it joins.

    Args:
        leaving: every channel.
        spent: unit -> reader -> the epsilon of the whole run and of this silo's earlier ones.
        alone: the same of the whole run alone.
        released: what the run reveals beside the figures, in sentences.
    """

    leaving: tuple[Leaving, ...]
    spent: dict[str, dict[str, Spent]]
    alone: dict[str, dict[str, Spent]]
    released: tuple[str, ...]


def dry_run(terms: Terms, before: Iterable[Charge] = ()) -> DryRun:
    """What the whole run would send and charge, from its channels alone: charges follow from public facts.

    Args:
        terms: of the file.
        before: what this silo was charged by earlier runs; it adds up.

    Raises:
        BadInput: where these were charged under another neighbouring relation.
    """
    prepared = terms.prepared
    bound, algorithm, names = prepared.bound, prepared.algorithm, prepared.federation.names
    paid = [one.channel for one in bound.bounds.values() if one.channel.to != REFEREE]
    uses = uses_in(algorithm, paid, len(names), prepared.rounds, terms.experiment.evaluate_every)
    costs: Counter[Cost] = Counter()
    for _, cost, times in charged(bound, uses, occurrences_in(algorithm, bound.policy)):
        costs[cost] += times
    leaving = tuple(
        Leaving(row["name"], row["to"], row["reveal"], row["policy"], uses.get(row["name"], 0))
        for row in bound.describe()
    )
    together = costs + Counter(one.cost for one in before)
    check_one_relation(together)
    return DryRun(leaving, _spent(terms, together), _spent(terms, costs), tuple(_released(terms)))


def _spent(terms: Terms, costs: Mapping[Cost, int]) -> dict[str, dict[str, Spent]]:
    owners, delta = terms.prepared.federation, terms.experiment.delta
    units = dict.fromkeys((*owners.units, *(one.unit for one in terms.prepared.bound.randomizers)))
    return {
        unit: {
            reader: WITHOUT
            if terms.server_scores and reader == Reader.SERVER
            else composed(dict(costs), unit, reader, owners.holders, delta)
            for reader in Reader
        }
        for unit in units
    }


def _released(terms: Terms) -> Iterable[str]:
    bounds = terms.prepared.bound.bounds.values()
    sent = [b for b in bounds if b.channel.reveal is not Reveal.NOTHING and b.channel.to != REFEREE]
    exact = [one.channel.name for one in sent if one.unprotected]
    if exact:
        yield f"in plaintext: {', '.join(exact)}"
    noised = {one.channel.name for one in sent if one.releases()}
    sums = [one.channel.name for one in sent if not one.unprotected and one.channel.name not in noised]
    if sums and terms.prepared.bound.steps is None and not terms.prepared.bound.randomizers:
        yield f"what the reader of each learns, hidden from the others: {', '.join(sums)}"
    excesses: dict[tuple[str, str], list[str]] = {}
    for one in sent:
        name = one.channel.name
        for sentence in one.excess:
            excesses.setdefault((sentence, " with its noise" if name in noised else ""), []).append(name)
    for (sentence, how), channels in excesses.items():
        yield f"of {', '.join(channels)}{how}: {sentence}"
    if terms.approved.federation.data.rows:
        yield (
            "whoever runs the server is the referee, outside every guarantee: it has the labels of "
            "validation and test rows, and may ask each silo at any time for its own rows of every "
            "aggregated layer, without noise; from those of the first layer features can be computed"
        )
        yield "how many rows all silos share"
    yield "sizes and times of messages, and who takes part in which round"
