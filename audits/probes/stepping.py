"""Noisy steps on a model's real parameters and known gradients: what is left of each step is noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.stats import binom, chi2

from secure_fedgraph.audits.probes.noise import Noise, likenesses, widths
from secure_fedgraph.audits.record import LEVEL, Finding
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training

Shapes = Mapping[str, tuple[int, ...]]
VALUES = 1_500_000
"""Values of noise, about, and of gradients that are held at a time."""
FEWEST, MOST = 16, 200
"""Steps."""
DRAWN = 8
"""Records in a step, about."""


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


@dataclass
class Pulling:
    """Records whose gradients are known: half of them within the clip, half far beyond it.

    Args:
        shapes: of the parameters, by their names.
        number: records.
        clip: of one gradient.
    """

    shapes: Shapes
    number: int
    clip: float
    asked: list[list[int]] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Values of a gradient."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def row(self, record: int) -> np.ndarray:
        """One record's gradient."""
        row = np.random.default_rng([7, record]).standard_normal(self.width).astype(np.float32)
        size = self.clip * (0.5 if record % 2 else 10.0)
        return np.asarray(row * (size / max(float(np.linalg.norm(row)), 1e-30)), dtype=np.float32)

    def clipped_sum(self, records: list[int]) -> np.ndarray:
        """The sum of clipped gradients that a step may have."""
        total = np.zeros(self.width)
        for record in records:
            row = self.row(record).astype(np.float64)
            total += row * min(1.0, self.clip / max(float(np.linalg.norm(row)), 1e-30))
        return total

    def gradients(self, chosen: torch.Tensor) -> dict[str, torch.Tensor]:
        """As training asks for them."""
        self.asked[-1] += chosen.tolist()
        rows = torch.from_numpy(np.stack([self.row(int(i)) for i in chosen]))
        parts = rows.split([math.prod(shape) for shape in self.shapes.values()], dim=1)
        return {
            name: part.reshape(-1, *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }


@dataclass(frozen=True)
class Steps:
    """Steps that were watched.

    Args:
        noise: what each left beside its records' clipped sum, over the claimed deviation.
        drawn: how many records each step asked for, ``[rounds, steps]``.
        number: how many records a client has.
        asked: which records were asked for, ``[all steps, records]``.
    """

    noise: Noise
    drawn: np.ndarray
    number: int
    asked: np.ndarray


def taken(private_steps: PrivateSteps, shapes: Shapes) -> Steps:
    """Runs rounds of noisy steps on records with known gradients.

    Args:
        private_steps: the steps; a round has as many as it says, up to what there is time for.
        shapes: of the parameters, by their names, in order.
    """
    width = sum(math.prod(shape) for shape in shapes.values())
    number = max(1, round(min(DRAWN / private_steps.rate, 2_000)))
    steps = min(max(VALUES // max(width, 1), FEWEST), MOST)
    each = min(private_steps.steps, max(steps // 2, 2))
    pulling = Pulling(shapes, number, private_steps.clip)
    expected = max(private_steps.rate * number, 1.0)
    rows: list[np.ndarray] = []
    chosen: list[np.ndarray] = []
    for _ in range(math.ceil(steps / each)):
        parameters = {
            name: torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
            for name, shape in shapes.items()
        }
        moving = _Moving(parameters)
        training = Training(
            PrivateSteps(
                private_steps.noise, private_steps.clip, private_steps.rate, each, private_steps.unit
            ),
            "zero-out",
        )
        asked = _asked_by_step(training, moving, pulling, parameters)
        for moved, records in zip(moving.moved, asked, strict=True):
            left = moved * expected - pulling.clipped_sum(records)
            rows.append(left / (private_steps.noise * private_steps.clip))
            chosen.append(np.isin(np.arange(number), records))
    names, start = [], 0
    for name, shape in shapes.items():
        names.append((name, start, start + math.prod(shape)))
        start += math.prod(shape)
    noise = Noise("steps", "a client's training", np.array(rows), tuple(names))
    who = np.array(chosen)
    return Steps(noise, who.sum(1).reshape(-1, each), number, who)


def _asked_by_step(
    training: Training, moving: _Moving, pulling: Pulling, parameters: dict[str, torch.nn.Parameter]
) -> list[list[int]]:
    """Which records each step asked for; a step that draws nobody asks for none."""
    by_step: list[list[int]] = []

    def gradients(chosen: torch.Tensor) -> dict[str, torch.Tensor]:
        while len(by_step) <= len(moving.moved):
            by_step.append([])
            pulling.asked.append(by_step[-1])
        return pulling.gradients(chosen)

    training.run(moving, parameters, pulling.number, gradients)
    return by_step + [[] for _ in range(len(moving.moved) - len(by_step))]


def steps_of(private_steps: PrivateSteps, shapes: Shapes, level: float = LEVEL) -> list[Finding]:
    """That steps move a model by their records' clipped sum and by noise, in every parameter.

    Args:
        level: the probability that chance accuses right steps.
    """
    watched = taken(private_steps, shapes)
    part = level / 4
    findings = widths(watched.noise, part) + likenesses([watched.noise], part)
    squares = np.square(watched.noise.values)
    if float(squares.sum()) > chi2.isf(part, squares.size):
        rms = math.sqrt(float(squares.mean()))
        findings.append(
            Finding(
                "pull",
                "steps",
                f"a step moves by more than its clipped sum and noise: {rms:.3g} of the noise is left",
            )
        )
    return findings + _rates(private_steps, watched, part)


def _rates(private_steps: PrivateSteps, watched: Steps, level: float) -> list[Finding]:
    """That each step of a round draws as many records as its rate says."""
    by_place = watched.drawn.sum(0)
    trials = len(watched.drawn) * watched.number
    low, high = binom.interval(1 - level / len(by_place), trials, private_steps.rate)
    wrong = np.flatnonzero((by_place < low) | (by_place > high))
    return [
        Finding(
            "rate",
            "steps",
            f"step {place + 1} of a round draws {by_place[place] / trials:.3g} of the records, "
            f"{private_steps.rate:.3g} are charged",
        )
        for place in wrong[:1]
    ]
