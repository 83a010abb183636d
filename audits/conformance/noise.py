"""Conformance of noise on the wire: on its grid, as wide as claimed and as charged, never the same twice."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.stats import chi2

from secure_fedgraph.audits.record import Finding, Record, noise_of
from secure_fedgraph.core.accounting.events import DiscreteRelease, Event, GaussianRelease, SampledGaussian
from secure_fedgraph.core.channel import Domain, UnitContributionMoments
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.clip import Clip
from secure_fedgraph.core.wire import decode
from secure_fedgraph.protocol.transcript import REFEREE

WHOLE = 0.02
"""How far a value that was sent as float32 may be from a whole step."""
ROUNDED = 1 - 1e-9
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


def scale(record: Record) -> Iterator[Finding]:
    """The noise named in a message is as large as its charge says, with the sensitivity computed again."""
    worst: dict[tuple[str, str], float] = {}
    for sent, tree in record.replies:
        if "sigma" in tree and "grid" in tree:
            key = sent.channel, sent.sender
            worst[key] = min(worst.get(key, math.inf), float(tree["sigma"]) * float(tree["grid"]))
    for charge in record.charged():
        bound = record.run.policy.bounds[charge.channel]
        stage, sensitivity = noise_of(bound), _moves(bound)
        if stage is None or sensitivity is None or (charge.channel, charge.client) not in worst:
            continue
        honest = 1
        if stage.by == "shares":
            counted_on = max(1, math.ceil(stage.colluders * len(bound.bind_context.clients) - 1e-9))
            honest = bound.bind_context.quorum - counted_on
        multiplier = worst[charge.channel, charge.client] * math.sqrt(max(honest, 0)) / sensitivity
        for reader, events in charge.releases.items():
            plain = map(_unsampled, events)
            claimed = [e for e in plain if isinstance(e, GaussianRelease | DiscreteRelease)]
            if any(e.noise_multiplier * ROUNDED > multiplier for e in claimed):
                yield Finding(
                    "scale",
                    charge.channel,
                    f"{charge.client} is charged against the {reader} for a noise multiplier of "
                    f"{max(e.noise_multiplier for e in claimed):.3g} and sends noise with a multiplier of "
                    f"{multiplier:.3g} (sensitivity {sensitivity:.3g})",
                )
            if any(isinstance(e, DiscreteRelease) and e.shares > honest for e in claimed):
                yield Finding(
                    "scale", charge.channel, f"the charge counts on more than {honest} honest shares"
                )


def _unsampled(event: Event) -> Event:
    """A sampled sum's noise, in multiples of what a unit moves where it is part of the sum."""
    if isinstance(event, SampledGaussian):
        return GaussianRelease(event.noise_multiplier / (2 if event.relation == "replace" else 1))
    return event


def _moves(bound: Bound) -> float | None:
    """The sensitivity of an upload by the declarations alone; None where they do not say."""
    contribution, twice = (
        bound.channel.unit_contribution,
        2 if bound.bind_context.relation == "replace" else 1,
    )
    if isinstance(contribution, UnitContributionMoments) and contribution.second and twice == 2:
        # two records with opposite targets; the worst of all angles between them
        cosines = np.linspace(0, 1, 10_001)
        squares = 2 + 2 * contribution.targets**2 - 2 * cosines**2 + 2 * cosines * contribution.targets**2
        return float(np.sqrt(squares.max())) / contribution.records
    if contribution is not None:
        return twice * math.sqrt(contribution.rows) * contribution.norm
    clips = [s for s in bound.stages if isinstance(s, Clip)]
    return twice * clips[0].norm if len(clips) == 1 else None
