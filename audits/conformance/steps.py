"""Noisy steps on records with known gradients: what is left of each is noise, and coins say who was in it.

Steps are called on a model's real parameters, and on a small one for as many steps as its coins need.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy.stats import binom, chi2

from secure_fedgraph.audits.conformance.added_noise import Noise, likenesses, spans, widths
from secure_fedgraph.audits.empirical_dp.worst_cases import in_tensors
from secure_fedgraph.audits.record import LEVEL, Finding
from secure_fedgraph.privacy.dp_sgd import SIGMA, PrivateSteps, Training

Shapes = Mapping[str, tuple[int, ...]]
VALUES = 1_500_000
"""Values of noise, about, and of gradients that are held at a time."""
FEWEST, MOST = 16, 200
"""Steps."""
DRAWN = 8
"""Records in a step, about."""
RECORDS, STEPS, SMALL = 200, 400, {"weights": (64,)}
"""How many records and steps coins are looked at in, and the parameters that take them."""


class _Moving(torch.optim.SGD):
    """Plain steps with learning rate 1 that note how far they really went."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        super().__init__(list(parameters.values()), lr=1.0)
        self.named, self.moved = parameters, list[np.ndarray]()

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Takes one step and notes it."""
        before = self._flat()
        super().step()
        self.moved.append(before - self._flat())

    def _flat(self) -> np.ndarray:
        return torch.cat([p.detach().reshape(-1) for p in self.named.values()]).numpy().copy()


@lru_cache(maxsize=RECORDS)
def _direction(width: int, record: int) -> np.ndarray:
    return np.random.default_rng([7, record]).standard_normal(width).astype(np.float32)


def _gradient(width: int, record: int, clip: float) -> np.ndarray:
    """One record's gradient, which is known: of every other record within the clip, else far beyond it."""
    row = (_direction if width < VALUES // 10 // RECORDS else _direction.__wrapped__)(width, record)
    size = clip * (0.5 if record % 2 else 10.0)
    return np.asarray(row * (size / max(float(np.linalg.norm(row)), 1e-30)), dtype=np.float32)


def _clipped_sum(width: int, records: list[int], clip: float) -> np.ndarray:
    """The sum of clipped gradients that a step may have."""
    total = np.zeros(width)
    for record in records:
        row = _gradient(width, record, clip).astype(np.float64)
        total += row * min(1.0, clip / max(float(np.linalg.norm(row)), 1e-30))
    return total


@dataclass(frozen=True)
class Steps:
    """Steps that were watched.

    Args:
        noise: what each left beside its records' clipped sum, over the claimed deviation.
        drawn: how many records each step asked for, ``[rounds, steps]``.
        number: how many records a client has.
        asked: which records were asked for, ``[all steps, records]``.
        moved: how far the parameters went, ``[all steps, values]``.
    """

    noise: Noise
    drawn: np.ndarray
    number: int
    asked: np.ndarray
    moved: np.ndarray


def taken(private_steps: PrivateSteps, shapes: Shapes, number: int = 0, steps: int = 0) -> Steps:
    """Runs rounds of noisy steps on records with known gradients.

    Args:
        private_steps: the steps; a round has as many as it says, up to what there is time for.
        shapes: of the parameters, by their names, in order.
        number, steps: records and steps; by default as many as there is time for.
    """
    width = sum(math.prod(shape) for shape in shapes.values())
    number = number or max(1, round(min(DRAWN / private_steps.rate, 2_000)))
    steps = steps or min(max(VALUES // max(width, 1), FEWEST), MOST)
    each, clip = min(private_steps.steps, max(steps // 2, 2)), private_steps.clip
    expected = max(private_steps.rate * number, 1.0)
    rows, chosen, went = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for _ in range(math.ceil(steps / each)):
        parameters = {
            name: torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
            for name, shape in shapes.items()
        }
        moving, asked = _Moving(parameters), [list[int]() for _ in range(each)]

        def gradients(
            records: torch.Tensor, moving: _Moving = moving, asked: list[list[int]] = asked
        ) -> dict[str, torch.Tensor]:
            asked[len(moving.moved)] += records.tolist()
            known = np.stack([_gradient(width, int(i), clip) for i in records])
            return in_tensors(torch.from_numpy(known), shapes)

        Training(replace(private_steps, steps=each), "zero-out").run(moving, parameters, number, gradients)
        for moved, records in zip(moving.moved, asked, strict=True):
            left = moved * expected - _clipped_sum(width, records, clip)
            rows.append(left / (private_steps.noise * clip))
            went.append(moved)
            chosen.append(np.isin(np.arange(number), records))
    noise = Noise("steps", "a client's training", np.array(rows), spans(shapes.items()))
    who = np.array(chosen)
    return Steps(noise, who.sum(1).reshape(-1, each), number, who, np.array(went))


def steps_of(
    private_steps: PrivateSteps, shapes: Shapes, charged: float | None = None, level: float = LEVEL
) -> list[Finding]:
    """That steps move a model by their records' clipped sum and by noise, in every parameter, on coins.

    Args:
        charged: the rate that is charged; by default the one of the events.
        level: the probability that chance accuses right steps' noise, and that it accuses right coins.
    """
    if charged is None:
        charged = next(e.rate for e in private_steps.events(1, "zero-out", 1) if hasattr(e, "rate"))
    part, small = level / 8, taken(private_steps, SMALL, RECORDS, STEPS)
    findings = [*_grid(private_steps, small), *_coins(small.asked, charged, part)]
    for watched in (small, taken(private_steps, shapes)):
        findings += widths(watched.noise, part) + likenesses([watched.noise], part)
        squares = np.square(watched.noise.values)
        if float(squares.sum()) > chi2.isf(part, squares.size):
            rms = math.sqrt(float(squares.mean()))
            what = f"a step moves by more than its clipped sum and noise: {rms:.3g} of the noise is left"
            findings.append(Finding("pull", "steps", what))
        findings += _rates(charged, watched, part)
    return findings


def _grid(private_steps: PrivateSteps, watched: Steps) -> Iterator[Finding]:
    """In every step the noise is on the grid, divided by the public number of records."""
    step = private_steps.noise * private_steps.clip / SIGMA

    def whole(rows: np.ndarray, over: float) -> bool:
        scaled = rows * over / step
        return bool(np.abs(scaled - np.rint(scaled)).max() < 1e-3)

    expected = max(private_steps.rate * watched.number, 1.0)
    wrong = [i for i, rows in enumerate(watched.moved) if not whole(rows, expected)]
    if wrong and all(whole(watched.moved[i], max(watched.asked[i].sum(), 1)) for i in wrong):
        what = "a step is divided by how many records were drawn, which is secret"
        yield Finding("denominator", "steps", what)
    elif wrong:
        yield Finding("grid", "steps", "noise off the grid: the last bits of floating point leak")


def _rates(rate: float, watched: Steps, level: float) -> list[Finding]:
    """That each step of a round draws as many records as its rate says."""
    by_place = watched.drawn.sum(0)
    trials = len(watched.drawn) * watched.number
    low, high = binom.interval(1 - level / len(by_place), trials, rate)
    wrong = np.flatnonzero((by_place < low) | (by_place > high))
    return [
        Finding(
            "rate",
            "steps",
            f"step {place + 1} of a round draws {by_place[place] / trials:.3g} of the records, "
            f"{rate:.3g} are charged",
        )
        for place in wrong[:1]
    ]


def _coins(asked: np.ndarray, rate: float, alpha: float) -> Iterator[Finding]:
    """Each record is drawn in each step by a coin of its own: ``asked`` is ``[steps, records]``."""
    table, (rounds, records) = asked.astype(float), asked.shape
    if rate == 1:
        return
    variance = rate * (1 - rate)
    for what, axis, parts in (("a step's number", 1, rounds), ("a record's number", 0, records)):
        other = table.size // parts
        spread = float(np.square(table.sum(axis) - other * rate).sum() / (other * variance))
        # the sum of squares is a chi-square one nearly: a factor of slack for the binomial's fourth moment
        if not chi2.ppf(alpha, parts) * 0.8 <= spread <= chi2.ppf(1 - alpha, parts) * 1.25:
            yield Finding(
                "coins", "coins", f"{what} of draws varies {spread / parts:.3g} times as much as coins do"
            )
