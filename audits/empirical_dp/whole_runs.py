"""Audits of a whole run on sums: one unit in every noised sum that the run opens, against the run's claim.

A trial is a run, seen by the server together with the clients that collude: the unit's part of each sum,
projected on the direction in which the unit moves it, and their likelihood ratios multiplied over all sums.

Real are a channel's bound protection at both ends: coins, clip, rounding, grid, every client's share of the
noise, and what the server opens (:func:`~secure_fedgraph.audits.empirical_dp.mechanisms.view`). The units are
planted far beyond the clip, each along coordinates of its own, so one sum holds a trial a unit. Not real are
what the algorithm answers (``benchmarks/real_removals.py`` has that), masks and
ciphertexts.

The claim is at a delta that no such number of trials reaches. The errors of the best test say that with less
noise than so many parts of the planned one they would be impossible; the accountant composes that noise at
the claim's delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from secure_fedgraph.audits.empirical_dp.epsilon import Audit, Lower, two_worlds, upper_limit
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


def audit_run(
    bounds: Mapping[str, Bound],
    uses: Mapping[str, int],
    events: Mapping[Event, int],
    *,
    turns: bool = False,
    trials: int = 20_000,
    delta: float = 1e-5,
    confidence: float = CONFIDENCE,
) -> Audit:
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
    return by_trade_off(ins, outs, threshold, events, events, delta=delta, confidence=confidence)


def by_trade_off(
    ins: np.ndarray,
    outs: np.ndarray,
    threshold: float,
    tested: Mapping[Event, int],
    charged: Mapping[Event, int],
    *,
    delta: float,
    confidence: float,
    missed: float = 0.0,
) -> Audit:
    """A claim about noise of a known shape, by the errors of a threshold.

    The accountant says how much less than the planned noise would make the errors impossible, and what the
    whole run costs with what is left.

    Args:
        ins, outs: scores with the unit and without it, higher where it is thought to be in.
        threshold: fixed before these scores were seen.
        tested: what one trial was charged.
        charged: what the claim is of.
        confidence: that a right mechanism is not accused; either bound has half of what is left.
        missed: how often a unit is in no trial, so that the best guesser misses it too.
    """
    confidence = (1 + confidence) / 2
    alpha, trials = (1 - confidence) / 2, ins.size
    wrong = (outs > threshold).sum(), (ins <= threshold).sum()
    errors, fewest = (
        upper_limit(np.array(some), trials, alpha) for some in (wrong, (0, round(missed * trials)))
    )
    noise, most = _allowed(tested, errors, 1.2, 1.01), _allowed(tested, fewest, 2.0, 2.0)
    least = 0.0 if noise >= _MOST else _epsilon(charged, noise, delta)
    ceiling = 0.0 if most >= _MOST else _epsilon(charged, most, delta)
    while math.isinf(ceiling) and most < 1:  # beyond what the accountant adds up
        most *= 2
        ceiling = _epsilon(charged, most, delta)
    return Audit(
        _epsilon(charged, 1.0, delta),
        Lower(least, ceiling, "the claim's own trade-off", delta, confidence, trials, trials),
        two_worlds(ins, outs, delta, confidence),
        None if tested == charged else _epsilon(tested, 1.0, delta),
        noise,
    )


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


def _allowed(events: Mapping[Event, int], errors: np.ndarray, step: float, finest: float) -> float:
    """The largest part of the planned noise that two errors allow, to a factor ``finest`` above it."""

    def refuted(scale: float) -> bool:
        for one, other in (errors, errors[::-1]):
            delta = float(1 - other - math.exp(NEAR) * one)
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
        return values[-2 * units :].reshape(units, 2)[:, 0]

    def of_both(values: np.ndarray) -> np.ndarray:
        rows, columns = np.triu_indices(units)
        both: np.ndarray = values[: -2 * units][rows == columns] + far * of_classes(values)
        return both / math.hypot(1, far)

    return ContributionMoments(records, targets), of_both if contribution.second else of_classes
