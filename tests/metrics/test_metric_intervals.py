"""Intervals hold the truth as often as they say, with noise and without: by Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.metrics.counting import FEW, MANY, Counting
from secure_fedgraph.metrics.figures import measured

LEAST = 0.86
SCHEMAS = {
    "two": Schema(3, 2),
    "three": Schema(3, 3),
    "number": Schema(3, 1, task=Task.NUMBER, low=0.0, high=10.0),
}
NAMES = {
    "two": ("auc", "accuracy", "brier", "average_precision"),
    "three": ("auc", "accuracy", "f1", "brier"),
    "number": ("mae", "rmse", "r2"),
}


def drawn(schema: Schema, n: int, seed: int, bins: int = FEW) -> torch.Tensor:
    """The cells of ``n`` items of one population, a third of two classes being positive."""
    draw = torch.Generator().manual_seed(seed)
    cells = Counting(schema, bins)
    if schema.task == Task.NUMBER:
        y = torch.rand(n, generator=draw) * 10
        return cells.total(((y - 5) / 5 + 0.3 * torch.randn(n, generator=draw))[:, None], y)
    shares = torch.tensor([0.65, 0.35] if schema.classes == 2 else [0.5, 0.3, 0.2])
    y = torch.multinomial(shares, n, replacement=True, generator=draw)
    scores = 0.7 * torch.randn(n, schema.classes, generator=draw) + shares.log()
    return cells.total(scores + torch.nn.functional.one_hot(y, schema.classes), y)


def coverage(name: str, noise: float, times: int, n: int = 400) -> dict[str, float]:
    """How often each metric's interval holds the population's figure."""
    schema, rng = SCHEMAS[name], np.random.default_rng(7)
    cells = Counting(schema, FEW)
    exact = Counting(schema, MANY if schema.task == Task.NUMBER else FEW)
    truth = measured(exact, drawn(schema, 300_000, 999, exact.bins).numpy(), intervals=False).figures
    held = dict.fromkeys(NAMES[name], 0)
    for seed in range(times):
        tested = drawn(schema, n, seed).numpy() + noise * rng.standard_normal(cells.size)
        figures = measured(cells, tested, None, noise, seed).figures
        for metric in held:
            held[metric] += figures[metric].low <= truth[metric].value <= figures[metric].high
    return {metric: count / times for metric, count in held.items()}


def enough(found: dict[str, float], times: int) -> bool:
    """Whether no share is so far below that chance explains it once in a thousand times at most."""
    return min(found.values()) >= LEAST - 3 * math.sqrt(LEAST * (1 - LEAST) / times)


@pytest.mark.parametrize("name", SCHEMAS)
def test_intervals_without_noise_hold_the_truth(name):
    found = coverage(name, 0.0, 60)
    assert enough(found, 60), found


@pytest.mark.parametrize(("name", "times"), [("two", 6), ("number", 8)])
def test_intervals_with_noise_hold_the_truth(name, times):
    found = coverage(name, 3.0, times)
    assert enough(found, times), found


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("name", SCHEMAS)
def test_at_least_nine_of_ten_intervals_hold_the_truth(name, noise):
    times = 100 if noise else 400
    found = coverage(name, noise, times)
    assert enough(found, times), found
