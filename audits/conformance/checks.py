"""Conformance: what a run's own record shows to be wrong, without any attack.

A check reads what was sent, opened and charged, and compares it with what should have been. It does not see a
leak that the declarations allow; attacks do. All statistical checks share one level: of a million right runs
one fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import chisquare

from secure_fedgraph.audits.conformance.data import rows_in
from secure_fedgraph.audits.conformance.ledger import composed, ledger
from secure_fedgraph.audits.conformance.noise import noise, scale
from secure_fedgraph.audits.conformance.secrets import secrets_in
from secure_fedgraph.audits.record import LEVEL, Finding, Record
from secure_fedgraph.core.channel import Domain, Reveal
from secure_fedgraph.core.message import has_digest
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import DIFFERENCES, SUBTRACTION
from secure_fedgraph.core.wire import Tree
from secure_fedgraph.protocol.transcript import REFEREE, SERVER
from secure_fedgraph.running.run import Run

__all__ = ["CHECKS", "FEWEST", "LEVEL", "Finding", "Record", "check"]

FEWEST = 256 * 5
"""The fewest bytes whose uniformity is tested."""


def domains(record: Record) -> Iterator[Finding]:
    """Every message has the number format that its policy promised, and no further entry."""
    published = record.run.transcript.public.get("channels", {})
    for name, bound in record.bounds.items():
        if published.get(name, {}).get("domain") != bound.carrier.gives.value:
            yield Finding("domains", name, "the published domain is not the one that is bound")
    for sent, tree in record.replies:
        reply_bound = record.run.policy.bounds.get(sent.channel)
        if reply_bound is None:
            yield Finding("domains", sent.channel, f"{sent.sender} sent on a channel that no policy protects")
        else:
            yield from (
                Finding("domains", sent.channel, f"{sent.sender} {what}")
                for what in _misfits(tree, reply_bound)
            )


_TRAVELS = {Domain.REAL: ("<f4",), Domain.RING: ("<f4", "<i4", "<i8"), Domain.MASKED: ("<u4", "u1")}


def _misfits(tree: Tree, bound: Bound) -> Iterator[str]:
    gives = bound.carrier.gives
    if bound.channel.reveal is Reveal.NOTHING:
        if tree:
            yield f"sent {', '.join(tree)} on a channel without uploads"
        return
    if tree.get("domain") != gives.value:
        yield f"sent {tree.get('domain')!r} numbers, the policy promises {gives.value}"
        return
    known = {"domain", "content"} if gives is Domain.SEALED else {"domain", "layout", "data", "context"}
    known |= {key for stage in bound.stages for key in stage.public()}
    more = [key for key in tree if key not in known and not key.startswith("key/")]
    if more:
        yield f"sent {', '.join(more)} beside its upload, with no noise and no charge"
    data = tree.get("data", tree.get("content"))
    if isinstance(data, np.ndarray):
        if data.dtype not in [np.dtype(t) for t in _TRAVELS.get(gives, ())]:
            yield f"sent {data.dtype} where {gives.value} numbers travel"
    elif gives in _TRAVELS or data is None:
        yield f"sent {type(data).__name__} where {gives.value} numbers travel"


def uniform(record: Record) -> Iterator[Finding]:
    """Bytes under masks and seals are uniform: a chi-square test of each client's on each channel."""
    pieces: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for sent, tree in record.replies:
        if tree.get("domain") in (Domain.MASKED.value, Domain.SEALED.value):
            data = tree.get("data", tree.get("content"))
            raw = data.tobytes() if isinstance(data, np.ndarray) else bytes(data or b"")
            pieces[sent.channel, sent.sender].append(raw[:-1])  # the last may be half a byte
    for (channel, sender), chunks in pieces.items():
        raw = b"".join(chunks)
        if len(raw) >= FEWEST:
            p = chisquare(np.bincount(np.frombuffer(raw, np.uint8), minlength=256)).pvalue
            if p < record.each:
                yield Finding(
                    "uniform", channel, f"{sender}'s {len(raw)} bytes are not uniform (p = {p:.1g})"
                )


def data(record: Record) -> Iterator[Finding]:
    """No row of a client's data, nor a simple transform of one, is in any message."""
    transcript = record.run.transcript
    for sent in transcript.sent:
        if sent.kept and REFEREE not in (sent.sender, sent.recipient):
            for owner, what in rows_in(transcript.body(sent.number), record.run.federation.owners):
                yield Finding("data", sent.channel, f"message {sent.number} holds {what} of {owner}")


def counted_bytes(record: Record) -> Iterator[Finding]:
    """Bytes reported are bytes sent."""
    transcript = record.run.transcript
    for sent in transcript.sent:
        if sent.kept:
            raw = transcript.body(sent.number)
            if len(raw) != sent.bytes or not has_digest(raw, sent.digest):
                yield Finding(
                    "bytes", sent.channel, f"message {sent.number} is noted as {sent.bytes} bytes: {len(raw)}"
                )
    traffic, total = transcript.traffic(), sum(s.bytes for s in transcript.sent)
    up = sum(s.bytes for s in transcript.sent if s.recipient == SERVER)
    if (sum(traffic.values()), traffic["up"]) != (total, up):
        yield Finding(
            "bytes", SERVER, f"{traffic} is reported where {total} bytes were sent, {up} of them up"
        )


def excess(record: Record) -> Iterator[Finding]:
    """A reader who can read more than a channel declares is listed as excess."""
    published = record.run.transcript.public.get("channels", {})
    view = record.run.transcript.view(SERVER)
    for name, bound in record.bounds.items():
        bound_excess = bound.excess
        if list(bound_excess) != published.get(name, {}).get("excess"):
            yield Finding("excess", name, "the published excess is not that of the bound protection")
        if bound.channel.reveal is Reveal.NOTHING:
            continue
        of_sums = (DIFFERENCES, SUBTRACTION)
        seen = view.uploads(name) if name in {s.channel for s, _ in record.replies} else []
        declared = bound.channel.reveal is Reveal.EACH and bound.channel.to == "server"
        if seen and not declared and not any(s not in of_sums for s in bound_excess):
            yield Finding(
                "excess", name, f"the server reads {len(seen)} single uploads, and no excess says so"
            )
        sums = bound.channel.reveal is Reveal.SUM and Reveal.EACH not in bound.carrier.reveals
        if sums and bound.channel.to == "server" and DIFFERENCES not in bound_excess:
            yield Finding("excess", name, "sums over cohorts that differ in one client are not declared")


def secrets(record: Record) -> Iterator[Finding]:
    """No key, no party and no client can be reached from what the server holds."""
    run = record.run
    held = {"state": run.state, "transcript": run.transcript, "policy": run.policy, "history": run.history}
    for place, what in secrets_in(held):
        yield Finding("secrets", SERVER, f"{what} can be reached from its {place}")


CHECKS: dict[str, Callable[[Record], Iterator[Finding]]] = {
    "domains": domains,
    "uniform": uniform,
    "data": data,
    "bytes": counted_bytes,
    "excess": excess,
    "secrets": secrets,
    "noise": noise,
    "scale": scale,
    "ledger": ledger,
    "composed": composed,
}


def check(run: Run, level: float = LEVEL) -> list[Finding]:
    """Every check of :data:`CHECKS` on a finished run.

    Needs:
        - a transcript that kept its messages in full; of what was not kept only sizes are checked.

    Args:
        run: what :func:`secure_fedgraph.train` returned.
        level: the probability that a right run fails by chance.

    Returns:
        What is wrong; empty where nothing is.

    Raises:
        BadInput: for a run that kept no message.
    """
    record = Record(run, level)
    return [finding for one in CHECKS.values() for finding in one(record)]
