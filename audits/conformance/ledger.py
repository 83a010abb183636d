"""Conformance of charges: one for each upload, with the events that its stages allow; what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from secure_fedgraph.audits.record import Finding, Record, noise_of
from secure_fedgraph.core import files
from secure_fedgraph.core.accounting import events as kinds
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import BrokenClaim
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.core.message import ANSWER, CARRIER
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.spending.ledger import TORN, Charge, read_ledger
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.experiment.results import read_json
from secure_fedgraph.experiment.schema import RunResult, read
from secure_fedgraph.privacy.spent import number, spent
from secure_fedgraph.protocol.transcript import SERVER
from secure_fedgraph.storage import manifest

ROUNDING = 1e-6
"""The share of an epsilon by which two compositions of the same charges may differ."""


def ledger(record: Record) -> Iterator[Finding]:
    """Each upload that was sent has one charge, with the events that its stages allow."""
    run, transcript = record.run, record.run.transcript
    uploads = Counter(
        (s.sender, s.exchange, s.channel)
        for s in transcript.sent
        if s.step == ANSWER and s.recipient == SERVER and not s.channel.startswith(CARRIER)
        if s.channel not in run.policy.bounds
        or run.policy.bounds[s.channel].channel.reveal is not Reveal.NOTHING
    )
    charged = Counter((c.client, c.exchange, c.channel) for c in record.charged())
    excused = {(one.client, one.exchange, one.channel) for one in transcript.left_out}
    # charged for, and stopped before the replies were noted
    stopped = {one.exchange for one in transcript.stopped}
    for client, exchange, channel in uploads - charged:
        yield Finding("ledger", channel, f"{client}'s upload of exchange {exchange} was not charged")
    for client, exchange, channel in charged - uploads:
        if (client, exchange, channel) not in excused and exchange not in stopped:
            what = f"{client} paid for exchange {exchange}, in which it sent nothing"
            yield Finding("ledger", channel, what)
    layouts = {
        (s.sender, s.exchange): Layout.from_text(t["layout"]) for s, t in record.replies if "layout" in t
    }
    for charge in record.charged():
        layout = layouts.get((charge.client, charge.exchange))
        wide = layout.rows * layout.width if layout else 0
        for what in _wrong_events(charge, run.policy.bounds[charge.channel], wide):
            yield Finding("events", charge.channel, f"a charge of {charge.client} {what}")
        for what in _wrong_steps(record, charge):
            yield Finding("events", charge.channel, f"{charge.client}'s noisy steps {what}")
    for one in run.policy.randomizers:
        paid = Counter(c.client for c in run.charges if c.channel == one.kind)
        if any(paid[c.client] != 1 for c in run.charges if c.client in run.federation.names):
            what = f"each client pays once for its {one.kind}; the payments are {dict(paid)}"
            yield Finding("ledger", one.kind, what)


def _wrong_events(charge: Charge, bound: Bound, wide: int) -> Iterator[str]:
    due: dict[str, str | bool] = {
        "unit": bound.unit.value,
        "relation": bound.relation,
        "computational": bound.computational,
    }
    for key, value in due.items():
        if (said := getattr(charge, key)) != value:
            yield f"has {key} {said!r}, and its channel has {value!r}"
    stage = noise_of(bound)
    readers = set(Reader) if stage and stage.by != "server" else {Reader.PEERS, Reader.OUTSIDER}
    if charge.releases and (
        stage is None or bound.sensitivity.unit is None or set(charge.releases) - readers
    ):
        yield f"counts noise against {', '.join(charge.releases)}: the channel has none"
    for event in (e for events in charge.releases.values() for e in events):
        if isinstance(event, kinds.DiscreteRelease) and event.width < wide:
            yield f"is of {event.width} values, and {wide} were sent"


def _wrong_steps(record: Record, charge: Charge) -> Iterator[str]:
    run, how = record.run, record.run.policy.steps
    events = [
        e for e in charge.steps.get(how.unit if how else "node", ()) if not isinstance(e, kinds.SamplingError)
    ]
    if events and (how is None or not run.policy.bounds[charge.channel].channel.trained):
        yield "are charged for an upload that is not made of them"
    elif how is not None and events:
        least = run.algorithm.occurrences(how.unit)
        for event in events:
            if isinstance(event, kinds.SampledGaussian | kinds.OccurringGaussian):
                times = event.occurrences if isinstance(event, kinds.OccurringGaussian) else 1
                quieter = event.noise_multiplier > how.noise  # than what was charged for
                if quieter or event.rate < how.rate or event.steps < how.steps or times < least:
                    yield (
                        f"are charged as {event}, {times} records a unit, and are "
                        f"{(how.noise, how.rate, how.steps)}, {least}"
                    )


def composed(record: Record) -> Iterator[Finding]:
    """No epsilon of the result is smaller than what the run's charges come to, against any of its readers."""
    if record.result is not None:
        yield from _understated(record.result, record.run.charges, record.run.federation.holders)


def check_printed(folder: Path, shared: Path | None = None) -> None:
    """Before a page or a card shows a run's result: holds it to the run's ledger, where that is there.

    A ledger may hold other runs besides, and a result does not name its run: it has to fit one of them.

    Args:
        shared: the ledger that the user named as the run's, where it is none of the folder's own.

    Raises:
        BrokenClaim: for an epsilon that is smaller than what the charges come to, naming both files.
        BadInput: for a file that is damaged.
    """
    path = folder / manifest.COVERED[0]
    if not path.exists():
        return
    result = read(RunResult, read_json(path, "run"), path)
    seeds = [folder / f"seed-{one.seed}" for one in result.seeds]
    for one in seeds:
        files.refuse_link(one)
    ledgers = [shared] if shared else [one / manifest.LEDGER for one in seeds or [folder]]
    for ledger in filter(files.size_of, ledgers):
        charges = read_ledger(ledger)
        mine = [[c for c in charges if c.counts_for(run)] for run in {c.run for c in charges} - {TORN}]
        holders = min(result.data.partition.holders or 1, len({c.client for c in charges}))
        found = [next(_understated(result, one, holders), None) for one in mine or [charges]]
        if found[0] is not None and None not in found:
            raise BrokenClaim(f"{path}: {found[0].where}: {found[0].what} in {ledger}: do not use the claim")


def _understated(result: RunResult, charges: Sequence[Charge], holders: int) -> Iterator[Finding]:
    """Each epsilon of a result that is smaller than what charges come to."""
    if charges and not result.privacy:  # which is shown as epsilon 0
        yield Finding("composed", "privacy", "the result has no epsilon, and the ledger has charges")
    for unit, claim in result.privacy.items():
        costs = spent(charges, claim.delta, holders, (unit,))[unit]
        for reader, epsilon in ((claim.against, claim.epsilon), *claim.readers.items()):
            if float(epsilon) < costs[Reader(reader)].epsilon * (1 - ROUNDING):
                worst = number(costs[Reader(reader)].epsilon)
                what = f"epsilon {epsilon} is printed against the {reader}; the charges come to {worst}"
                yield Finding("composed", f"one {unit}", what)
