"""Conformance of charges: one for each upload, with the right events, and epsilons composed again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import torch

from secure_fedgraph.audits.conformance.printed import printed
from secure_fedgraph.audits.record import Finding, Record, noise_of
from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.core.accounting.events import (
    DiscreteRelease,
    Event,
    GaussianRelease,
    OccurringGaussian,
    OneHolderRelease,
    PureRelease,
    SampledGaussian,
    SamplingError,
)
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.guarantee import LARGER, Reader, Unit
from secure_fedgraph.core.message import ANSWER, CARRIER
from secure_fedgraph.core.spending.ledger import EVERYBODY, OF_NODES, OF_ONE_GRAPH, Charge
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.privacy.input_dp.labels import HOME, DividedLabels
from secure_fedgraph.protocol.transcript import SERVER


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
            yield Finding(
                "ledger", channel, f"{client} paid for exchange {exchange}, in which it sent nothing"
            )
    layouts = {
        (s.sender, s.exchange): Layout.from_text(t["layout"]) for s, t in record.replies if "layout" in t
    }
    for charge in record.charged():
        bound = run.policy.bounds[charge.channel]
        due: dict[str, str | bool] = {
            "unit": bound.unit.value,
            "relation": bound.relation,
            "computational": bound.computational,
        }
        for key, value in due.items():
            if (said := getattr(charge, key)) != value:
                yield Finding(
                    "events",
                    charge.channel,
                    f"a charge of {charge.client} has {key} {said!r}, and its channel has {value!r}",
                )
        stage = noise_of(bound)
        readers = (
            set(Reader)
            if stage and stage.by != "server"
            else {Reader.PEERS, Reader.OUTSIDER}
            if stage
            else set()
        )
        bounded = bound.sensitivity.unit is not None
        if not set(charge.releases) <= (readers if bounded else set()):
            yield Finding(
                "events",
                charge.channel,
                f"{charge.client} counts noise against {', '.join(charge.releases)}: the channel has none",
            )
        if stage is not None and stage.by == "shares" and charge.releases and not charge.computational:
            yield Finding("events", charge.channel, "noise under masks is not marked as computational")
        layout = layouts.get((charge.client, charge.exchange))
        for event in (e for events in charge.releases.values() for e in events):
            wide = layout is not None and layout.rows * layout.width
            if wide and isinstance(event, DiscreteRelease) and event.width < wide:
                yield Finding("events", charge.channel, f"{wide} values were sent, {event.width} are charged")
    for client, digests in Counter(c for c, _ in {(c.client, c.data) for c in record.charged()}).items():
        if digests > 1:
            yield Finding("ledger", "data", f"{client}'s charges are of {digests} different data")
    yield from _steps(record)


def _steps(record: Record) -> Iterator[Finding]:
    run, how = record.run, record.run.policy.steps
    for charge in record.charged():
        bound = run.policy.bounds[charge.channel]
        events = [
            e for e in charge.steps.get(how.unit if how else "node", ()) if not isinstance(e, SamplingError)
        ]
        if events and (how is None or not bound.channel.trained):
            yield Finding(
                "events", charge.channel, "noisy steps are charged for an upload that is not made of them"
            )
        elif how is not None:
            least = run.algorithm.occurrences(how.unit) if events else 1
            for event in events:
                if not isinstance(event, SampledGaussian | OccurringGaussian):
                    continue
                times = event.occurrences if isinstance(event, OccurringGaussian) else 1
                quieter = event.noise_multiplier > how.noise  # than what was charged for
                if quieter or event.rate < how.rate or event.steps < how.steps or times < least:
                    yield Finding(
                        "events",
                        charge.channel,
                        f"{charge.client}'s steps are charged as {event}, {times} records "
                        f"a unit, and are {(how.noise, how.rate, how.steps)}, {least}",
                    )
    charged = {c.client for c in run.charges} & set(run.federation.names)
    for one in run.policy.randomizers:
        paid = Counter(c.client for c in run.charges if c.channel == one.kind)
        if any(paid[name] != 1 for name in charged):
            yield Finding(
                "ledger", one.kind, f"each client pays once for its {one.kind}; the payments are {dict(paid)}"
            )
    divided = {one.kind for one in run.policy.randomizers if one.divided or isinstance(one, DividedLabels)}
    for charge in run.charges:
        alone = any(isinstance(e, OneHolderRelease) for events in charge.steps.values() for e in events)
        if alone and charge.channel not in divided:
            yield Finding(
                "ledger", charge.channel, f"{charge.client} pays as the only holder, and nothing is divided"
            )
    # a rating is at one owner as it is; of nodes one owner counts each
    homed = [own for own in run.federation.owners.values() if HOME in own]
    if homed and any(charge.one_holder for charge in run.charges):
        counted = torch.cat([own.node_id[own[HOME].bool()] for own in homed])
        if len(counted.unique()) < len(counted):
            yield Finding("ledger", "home", "charges are one holder's, and some nodes have two homes")


def composed(record: Record, delta: float = 1e-5) -> Iterator[Finding]:
    """The epsilons of the result are no less than each client's charges composed again, with all holders.

    Nor are those that its file prints, where there is one.
    """
    run = record.run
    if record.result is not None:
        yield from printed(record.result, run.charges, run.federation.holders)
    privacy, holders = run.privacy(delta=delta), run.federation.holders
    for unit in (u for u in run.federation.units if u in OF_ONE_GRAPH or u in LARGER):
        for reader in Reader:
            reported = float(privacy[unit]["readers"][reader])
            worst = 0.0
            for client in {c.client for c in run.charges}:
                mine = [c for c in run.charges if c.client in (client, *EVERYBODY)]
                events = [_at(c, unit, reader, holders) for c in mine]
                flat = None if None in events else [e for scaled in events for e in scaled or ()]
                cost = math.inf if flat is None else epsilon.epsilon(flat, delta).epsilon
                worst = max(worst, cost)
            if reported < worst * (1 - 1e-6):
                yield Finding(
                    "composed",
                    unit,
                    f"epsilon {reported:.4g} is reported against the {reader}; all uploads of one client and "
                    f"{holders} holders cost {worst:.4g}",
                )


def _at(charge: Charge, unit: str, reader: str, holders: int) -> list[Event] | None:
    if charge.one_holder and unit in ((Unit.EDGE,) if charge.unit == Unit.EDGE else (Unit.NODE, *OF_NODES)):
        holders = 1
    if unit in charge.steps:
        several = 1 if unit == "client" else holders
        return [
            e for e in charge.steps[unit] for _ in range(1 if isinstance(e, OneHolderRelease) else several)
        ]
    if reader not in charge.releases:
        return None
    events = list(charge.releases[reader])
    if charge.unit == unit:
        apart = holders if unit in ("graph", "node", "edge") else 1
    elif charge.unit in LARGER.get(unit, ()):
        apart = (1 if charge.relation == "replace" else 2) * (
            holders if charge.unit in ("client", "graph", "node") else 1
        )
    else:
        return None
    scaled: list[Event] = []
    for e in events:
        if isinstance(e, GaussianRelease):
            scaled.append(GaussianRelease(e.noise_multiplier / apart))
        elif isinstance(e, DiscreteRelease):
            kept = {k: getattr(e, k) for k in ("shares", "sigma", "width", "total_variation")}
            scaled.append(DiscreteRelease(e.noise_multiplier / apart, **kept))
        elif isinstance(e, PureRelease):
            scaled.append(PureRelease(e.epsilon * apart))
        else:
            scaled.append(e)
    return scaled
