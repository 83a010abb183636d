"""Conformance of noise on the wire: on its grid, as wide as claimed, never the same twice."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.stats import chi2

from secure_fedgraph.audits.record import Finding, Record, noise_of
from secure_fedgraph.core.channel import Domain
from secure_fedgraph.core.wire import decode
from secure_fedgraph.protocol.transcript import REFEREE

WHOLE = 0.02
"""How far a value that was sent as float32 may be from a whole step."""
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
    record: Record,
    before: LastSeen,
    channel: str,
    who: str,
    steps: np.ndarray,
    sigma: float,
) -> Iterator[Finding]:
    """Args: values and the claimed deviation of their noise, both in steps of the grid."""
    width = steps.size
    if np.abs(steps - np.rint(steps)).max() > WHOLE:
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
