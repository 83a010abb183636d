"""Conformance: what a run's own record shows to be wrong, without any attack.

A check reads what was sent, opened and charged, and compares it with what should have been. It does not see a
leak that the declarations allow; attacks do. All statistical checks share one level: of a million right runs
one fails.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import chi2, chisquare

from secure_fedgraph.audits.conformance.ledger import composed, ledger
from secure_fedgraph.audits.record import LEVEL, Finding, Record, noise_of
from secure_fedgraph.core.carriers.secagg.openings import SIGNATURE
from secure_fedgraph.core.channel import Domain, Reveal
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.wire import Tree, decode
from secure_fedgraph.protocol.transcript import REFEREE
from secure_fedgraph.running.run import Run

# Conformance of noise on the wire: on its grid, as wide as claimed, never the same twice.

WHOLE = 0.02
"""How far a value that was sent as float32 may be from a whole step."""
_ROUNDED = 2.0**-24
"""The same as a share of the value: a sum of a million steps is rounded to a sixteenth of one."""
LastSeen = dict[tuple[str, str], tuple[np.ndarray, float]]
"""(channel, reader or sender) -> the last values in steps, and the variance of their noise."""


def noise(record: Record) -> Iterator[Finding]:
    """Noise is on the wire, on the grid, as wide as claimed, and never the same twice."""
    before: LastSeen = {}
    for sent, tree in record.replies:
        stage = noise_of(record.run.policy.bounds.get(sent.channel))
        if stage is None or "data" not in tree or stage.by != "client":
            continue
        if tree["domain"] == Domain.REAL.value:
            values = np.asarray(tree["data"], dtype=np.float64)
            grid, sigma = float(tree["grid"]), float(tree["sigma"])
            if (named := grid * sigma) < (due := stage.step * stage.sigma) * (1 - 1e-9):
                what = f"{sent.sender} names noise of {named:.3g}, and its channel has {due:.3g}"
                yield Finding("noise", sent.channel, what)
            yield from _noised(record, before, sent.channel, sent.sender, values / grid, sigma)
    for note in record.run.transcript.opened:
        stage = noise_of(record.run.policy.bounds.get(note.channel))
        if stage is None or stage.by == "client" or not note.kept or note.reader == REFEREE:
            continue
        opened = decode(record.run.transcript.body(note.number))
        values = np.concatenate([np.asarray(v, dtype=np.float64).reshape(-1) for v in opened.values()])
        # what is left where all of them handed out what the sum does not need: other noise only adds to it
        sigma = stage.deviation(len(note.contributors)) / stage.step
        yield from _noised(record, before, note.channel, note.reader, values / stage.step, sigma)


def _noised(
    record: Record, before: LastSeen, channel: str, who: str, steps: np.ndarray, sigma: float
) -> Iterator[Finding]:
    """Args: values and the claimed deviation of their noise, both in steps of the grid."""
    width = steps.size
    if (np.abs(steps - np.rint(steps)) > WHOLE + _ROUNDED * np.abs(steps)).any():
        yield Finding(
            "grid", channel, f"{who}: values lie between the steps, so the noise is not on the grid"
        )
    # what is hidden only adds to the sum of squares around the mean, so the lower tail is the noise's
    variance = sigma**2
    if width > 1:
        least = variance * chi2.ppf(record.each, width - 1)
        squares = float(np.square(steps - steps.mean()).sum())
        if squares < least:
            rms = math.sqrt(squares / (width - 1))
            yield Finding(
                "noise",
                channel,
                f"{who}: noise of {rms:.3g} steps at most, {math.sqrt(variance):.3g} are claimed",
            )
    for (other, name), (earlier, earlier_variance) in before.items():
        if other == channel and earlier.size == width:
            apart = float(np.square(steps - earlier).sum())
            # a sum of fewer clients holds fewer shares
            if apart < (variance + earlier_variance) * chi2.ppf(record.each / (len(before) + 1), width):
                yield Finding("repeated", channel, f"{who} and {name} differ by less than fresh noise would")
    before[channel, who] = steps, variance


FEWEST = 256 * 5
"""The fewest bytes whose uniformity is tested."""
_TRAVELS = {Domain.REAL: ("<f4",), Domain.RING: ("<f4", "<i4", "<i8"), Domain.MASKED: ("<u4", "u1")}


def domains(record: Record) -> Iterator[Finding]:
    """Every message has the number format that its policy promised, and no further entry."""
    published = record.run.transcript.public.get("channels", {})
    for name, bound in record.bounds.items():
        if published.get(name, {}).get("domain") != bound.carrier.gives.value:
            yield Finding("domains", name, "the published domain is not the one that is bound")
    for sent, tree in record.replies:
        reply_bound = record.run.policy.bounds.get(sent.channel)
        wrong = ["sent on a channel that no policy protects"]
        for what in wrong if reply_bound is None else _misfits(tree, reply_bound):
            yield Finding("domains", sent.channel, f"{sent.sender} {what}")


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
    known |= {SIGNATURE} if getattr(bound.carrier, "disputes", 0) else set()
    known |= {key for stage in bound.stages for key in stage.public()}
    if more := [key for key in tree if key not in known and not key.startswith("key/")]:
        yield f"sent {', '.join(more)} beside its upload, with no noise and no charge"
    data = tree.get("data", tree.get("content"))
    if isinstance(data, np.ndarray):
        if data.dtype not in [np.dtype(t) for t in _TRAVELS.get(gives, ())]:
            yield f"sent {data.dtype} where {gives.value} numbers travel"
    elif gives in _TRAVELS or data is None:
        yield f"sent {type(data).__name__} where {gives.value} numbers travel"


def uniform(record: Record) -> Iterator[Finding]:
    """Bytes under masks and seals are uniform: a chi-square test of each client's on each channel."""
    pieces: dict[tuple[str, str], bytes] = defaultdict(bytes)
    for sent, tree in record.replies:
        if tree.get("domain") in (Domain.MASKED.value, Domain.SEALED.value):
            data = tree.get("data", tree.get("content"))
            raw = data.tobytes() if isinstance(data, np.ndarray) else bytes(data or b"")
            pieces[sent.channel, sent.sender] += raw[:-1]  # the last may be half a byte
    for (channel, sender), raw in pieces.items():
        if len(raw) >= FEWEST:
            p = chisquare(np.bincount(np.frombuffer(raw, np.uint8), minlength=256)).pvalue
            if p < record.each:
                what = f"{sender}'s {len(raw)} bytes are not uniform (p = {p:.1g})"
                yield Finding("uniform", channel, what)


CHECKS: dict[str, Callable[[Record], Iterator[Finding]]] = {
    "domains": domains,
    "uniform": uniform,
    "noise": noise,
    "ledger": ledger,
    "composed": composed,
}


def check(run: Run, level: float = LEVEL) -> list[Finding]:
    """Every check of :data:`CHECKS` on a finished run.

    Needs:
        - a transcript that kept its messages in full; what was not kept is not checked.

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
