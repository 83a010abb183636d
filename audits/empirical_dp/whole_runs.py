"""Audits of a whole run on sums: one unit in every noised sum that the run opens, against the run's claim.

A trial is a run, seen by the server together with the clients that collude: the unit's part of each sum,
projected on the direction in which the unit moves it, and their likelihood ratios multiplied over all sums.

Real are a channel's bound protection at both ends: coins, clip, rounding, grid, every client's share of the
noise, and what the server opens (:func:`~secure_fedgraph.audits.empirical_dp.mechanisms.view`). The units are
planted far beyond the clip, each along coordinates of its own, so one sum holds a trial a unit. Not real are
what the algorithm answers (:mod:`~secure_fedgraph.audits.empirical_dp.real_removals` has that), masks and
ciphertexts.

The claim is at a delta that no such number of trials reaches. The errors of the best test say that with less
noise than so many parts of the planned one they would be impossible; the accountant composes that noise at
the claim's delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from secure_fedgraph.audits.empirical_dp.epsilon import Lower, two_worlds, upper_limit
from secure_fedgraph.audits.empirical_dp.mechanisms import CONFIDENCE, LEAST_PILOT, PILOT, view
from secure_fedgraph.audits.empirical_dp.worst_cases import BEYOND, Neighbours
from secure_fedgraph.audits.record import noise_of
from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.channel import UnitContributionMoments, UnitContributionSampled
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Relation
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.upload import AnyUpload, ContributionMoments, ContributionSample

BLOCK, SECOND_BLOCK = 1000, 32
"""Units in one sum; of second moments, whose number is half the square of it."""
NEAR = 0.05
"""The epsilon at which errors are compared with a claim's curve: near 0, as both errors are about even."""
_LEAST, _MOST = 0.02, 50.0
"""Parts of the planned noise between which the search goes on."""


@dataclass(frozen=True)
class RunAudit:
    """A whole run's claim, and what trials show.

    Args:
        claim: epsilon of all sums of the run, as planned and charged.
        lower: a lower bound, by the claim's own trade-off curve at less or more noise.
        any_noise: from the same scores without that hypothesis.
        noise: the largest part of the planned noise that the errors allow.
    """

    claim: float
    lower: Lower
    any_noise: Lower
    noise: float

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower.refutes(self.claim) or self.any_noise.refutes(self.claim)

    @property
    def reached(self) -> float:
        """The share of the claim that the lower bound reaches."""
        return self.lower.epsilon / self.claim


def audit_run(
    bounds: Mapping[str, Bound],
    uses: Mapping[str, int],
    events: Mapping[Event, int],
    *,
    turns: bool = False,
    trials: int = 20_000,
    delta: float = 1e-5,
    confidence: float = CONFIDENCE,
) -> RunAudit:
    """Compares the claim of a whole run with what the server reads of one unit in all its sums.

    Args:
        bounds: the run's noised channels to the server, by name.
        uses: how often a client is asked on each.
        events: all that the run is charged for at the unit (``Forecast.events``).
        turns: whether the unit's part turns into its opposite, and does not only go: as a label does.
        trials: of each world; a pilot of a twentieth of them comes on top.
        delta: the claim's.
        confidence: that a right run is not accused; either bound has half of what is left.
    """
    pilot = max(trials // PILOT, LEAST_PILOT)
    many = pilot + trials
    ins, outs = (
        sum((_scores(bounds[name], uses[name], many, present, turns) for name in bounds), np.zeros(many))
        for present in (True, False)
    )
    # a pilot chooses the threshold: with other noise than planned both worlds' ratios lie elsewhere
    threshold = float(ins[:pilot].mean() + outs[:pilot].mean()) / 2
    ins, outs = ins[pilot:], outs[pilot:]
    confidence = (1 + confidence) / 2
    alpha = (1 - confidence) / 2
    wrong_out, wrong_in = (
        float(upper_limit(np.array([errors]), trials, alpha)[0])
        for errors in ((outs > threshold).sum(), (ins <= threshold).sum())
    )
    none = float(upper_limit(np.zeros(1), trials, alpha)[0])
    noise, most = _allowed(events, wrong_out, wrong_in, 1.2, 1.002), _allowed(events, none, none, 2.0, 2.0)

    def epsilon(scale: float) -> float:
        return 0.0 if scale >= _MOST else _epsilon(events, scale, delta)

    lower = Lower(
        epsilon(noise), epsilon(most), "the run's own trade-off", delta, confidence, trials, trials,
        {"noise": noise},
    )  # fmt: skip
    any_noise = two_worlds(ins, outs, delta, confidence)
    return RunAudit(_epsilon(events, 1.0, delta), lower, any_noise, noise)


def fits(bound: Bound) -> bool:
    """Whether a channel's part of a run can be played: the server reads it under noise, units only go."""
    stage, sums = noise_of(bound), UnitContributionSampled | UnitContributionMoments
    one_way = bound.bind_context.relation == Relation.ZERO_OUT and stage is not None and stage.by != "server"
    return one_way and isinstance(bound.channel.unit_contribution, sums)


def _epsilon(events: Mapping[Event, int], scale: float, delta: float) -> float:
    scaled: dict[Event, int] = {}
    for event, times in events.items():
        one = event.with_noise_scaled(scale)
        scaled[one] = scaled.get(one, 0) + times
    return accounting.epsilon(scaled, delta).epsilon


def _allowed(
    events: Mapping[Event, int], false_positive: float, false_negative: float, step: float, finest: float
) -> float:
    """The largest part of the planned noise that two errors allow, to a factor ``finest`` above it."""

    def refuted(scale: float) -> bool:
        for one, other in ((false_positive, false_negative), (false_negative, false_positive)):
            delta = 1 - other - math.exp(NEAR) * one
            if delta > 0 and _epsilon(events, scale, delta) < NEAR:
                return True
        return False

    low = high = 1.0
    if refuted(1.0):
        while low > _LEAST and refuted(low):
            low, high = low / step, low
    else:
        while high < _MOST and not refuted(high):
            low, high = high, high * step
    while high / low > finest:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high


def _scores(bound: Bound, uses: int, trials: int, present: bool, turns: bool) -> np.ndarray:
    """Logarithms of the likelihood ratio of each trial's sums on one channel, added up: ``[trials]``."""
    stage = noise_of(bound)
    if stage is None:
        raise BadInput(f"channel {bound.channel.name!r} has no noise")
    variance = stage.multiplier**2
    total = np.zeros(trials)
    for _ in range(uses):
        x = np.concatenate(list(_read(bound, trials, present, turns)))[:trials]
        if turns:
            total += 2 * x / variance
        else:
            total += np.log1p(stage.rate * np.expm1((2 * x - 1) / (2 * variance)))
    return total


def _read(bound: Bound, trials: int, present: bool, turns: bool) -> Iterator[np.ndarray]:
    """Sum by sum, how far along its own direction each unit is, in the distance that is charged."""
    contribution, stage = bound.channel.unit_contribution, noise_of(bound)
    assert contribution is not None and stage is not None
    answering = bound.bind_context.quorum if stage.by == "shares" else 0
    names = bound.bind_context.clients[: answering or None]
    colluders = names[stage.honest :] if answering else ()
    side = 1.0 if present else -1.0 if turns else 0.0
    second = isinstance(contribution, UnitContributionMoments) and contribution.second
    block = min(SECOND_BLOCK if second else BLOCK, trials)
    empty, _ = _uploads(bound, block, 0.0)
    see = view(bound, Neighbours(names[0], dict.fromkeys(names, empty), {}), "server", colluders)
    for _ in range(math.ceil(trials / block)):
        upload, read = _uploads(bound, block, side)
        yield read(see({**dict.fromkeys(names, empty), names[0]: upload})[0]) / contribution.norm


def _uploads(bound: Bound, units: int, side: float) -> tuple[AnyUpload, Callable[[np.ndarray], np.ndarray]]:
    """An upload of so many units far beyond the clip, and what is read of each: its length.

    Args:
        side: 1 with the units, 0 without them, -1 where they are turned.
    """
    contribution = bound.channel.unit_contribution
    if isinstance(contribution, UnitContributionSampled):
        taken = bound.coins(units) if side else torch.zeros(0, dtype=torch.int64)
        rows = torch.zeros(len(taken), units)
        rows[torch.arange(len(taken)), taken] = side * BEYOND * contribution.norm
        return ContributionSample({"rows": rows}, taken), lambda values: values
    if not isinstance(contribution, UnitContributionMoments):
        raise BadInput(f"channel {bound.channel.name!r}: no whole run is known for what it declares")
    far = contribution.targets
    targets = torch.zeros(units, 2)
    targets[:, 0] = side * BEYOND * far
    records = BEYOND * abs(side) * torch.eye(units)

    def of_classes(values: np.ndarray) -> np.ndarray:
        first: np.ndarray = values[-2 * units :].reshape(units, 2)[:, 0]
        return first

    def of_both(values: np.ndarray) -> np.ndarray:
        rows, columns = np.triu_indices(units)
        both: np.ndarray = values[: -2 * units][rows == columns] + far * of_classes(values)
        return both / math.hypot(1, far)

    return ContributionMoments(records, targets), of_both if contribution.second else of_classes
