"""What one item adds to the cells: never more than is declared, whatever its scores."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.metrics.counting import FEW, HITS, MANY, Counting

NAN, INF = math.nan, math.inf
SCORES = (-INF, -5.0, 0.0, 0.3, INF, NAN)
"""Of one output: beyond every bin on both sides, in the middle, and no number at all."""
NUMBERS = (-INF, -1.0, 0.25, 1.0, INF, NAN)
ROUNDING = 1e-6


def schema(task: str, classes: int) -> Schema:
    ends = {"low": -2.0, "high": 6.0} if task == Task.NUMBER else {}
    return Schema(3, classes, task=task, **ends)


def labels(task: str, classes: int) -> torch.Tensor:
    """Every answer that an item may have."""
    if task == Task.NUMBER:
        return torch.tensor([-INF, -2.0, 0.5, 6.0, INF, NAN])
    if task == Task.LABELS:
        return torch.tensor(list(itertools.product((0.0, 1.0, NAN), repeat=classes)))
    return torch.arange(-1, classes)


def every_item(task: str, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each combination of scores with each answer."""
    of_one = NUMBERS if task == Task.NUMBER else SCORES
    outputs = 1 if task == Task.NUMBER else 4 if task == Task.LINKS else classes
    scores = torch.tensor(list(itertools.product(of_one, repeat=outputs)))
    y = torch.zeros(1, dtype=torch.int64) if task == Task.LINKS else labels(task, classes)
    both = torch.cartesian_prod(torch.arange(len(scores)), torch.arange(len(y)))
    return scores[both[:, 0]], y[both[:, 1]]


CASES = [
    (Task.CLASSES, 2),
    (Task.CLASSES, 3),
    (Task.LINK_CLASSES, 2),
    (Task.LINK_CLASSES, 3),
    (Task.LABELS, 1),
    (Task.LABELS, 2),
    (Task.LABELS, 3),
    (Task.NUMBER, 1),
    (Task.LINKS, 2),
]


@pytest.mark.parametrize("bins", [FEW, MANY])
@pytest.mark.parametrize(("task", "classes"), CASES)
def test_one_item_moves_the_cells_by_the_norm_at_most(task, classes, bins):
    """By exact enumeration: every answer with every score, removed from among all others."""
    cells = Counting(schema(task, classes), bins)
    scores, y = every_item(task, classes)
    parts = cells.parts(scores, y).double()
    assert parts.shape == (len(scores), cells.size)
    assert parts.isfinite().all()
    assert parts.min() >= 0
    far = parts.norm(dim=1)
    assert far.max() <= cells.norm + ROUNDING
    if task != Task.NUMBER or cells.binned:  # of numbers the five cells are never all 1 together
        assert far.max() == pytest.approx(cells.norm, abs=ROUNDING)  # what is declared is reached
    whole = cells.total(scores, y)
    for gone in range(0, len(scores), max(len(scores) // 40, 1)):
        left = torch.arange(len(scores)) != gone
        moved = (whole - cells.total(scores[left], y[left])).norm()
        assert moved <= cells.norm + 1e-4
        assert moved == pytest.approx(float(far[gone]), abs=1e-4)  # the others' parts are as they were


@pytest.mark.parametrize(("task", "classes"), CASES)
def test_nan_is_never_better_than_any_score(task, classes):
    cells = Counting(schema(task, classes), FEW)
    if task == Task.NUMBER:
        y = torch.tensor([-2.0, 2.0, 6.0, 4.5])
        worst, other = (cells.parts(torch.full((4, 1), one), y)[:, :FEW].argmax(dim=1) for one in (NAN, 0.0))
        assert (worst >= other).all()
        assert worst[[0, 2]].tolist() == [FEW - 1, FEW - 1]
    elif task == Task.LINKS:
        wrong = torch.zeros(1, HITS)
        hit, missed = cells.parts(torch.cat([torch.tensor([[NAN]]), wrong], dim=1), torch.zeros(1))[0, -2:]
        assert (hit, missed) == (0, 1)
    elif task == Task.LABELS:
        y = torch.ones(1, classes)
        parts = cells.parts(torch.full((1, classes), NAN), y).reshape(classes, 2, FEW)
        assert (parts[:, 1, 0] > 0).all()
    elif cells.two:
        parts = cells.parts(torch.full((2, 2), NAN), torch.tensor([0, 1])).reshape(2, 2, FEW)
        assert (parts[0, 0, -1], parts[1, 1, 0]) == (1, 1)
    else:
        confused = cells.parts(torch.full((3, 3), NAN), torch.arange(3))[:, :9].reshape(3, 3, 3)
        assert confused.sum(dim=0).diagonal().sum() == 0


def test_numbers_without_an_answer_add_nothing():
    cells = Counting(schema(Task.NUMBER, 1), FEW)
    assert cells.parts(torch.zeros(2, 1), torch.tensor([NAN, INF])).sum() == 0


def test_no_items_are_no_counts():
    for task, classes in CASES:
        cells = Counting(schema(task, classes), FEW)
        scores, y = every_item(task, classes)
        assert cells.total(scores[:0], y[:0]).tolist() == [0.0] * cells.size


@pytest.mark.parametrize("positive", [0, 1])
def test_scores_are_of_the_positive_class(positive):
    cells = Counting(Schema(3, 2, positive=positive), FEW)
    scores = torch.zeros(1, 2)
    scores[0, positive] = 9.0
    parts = cells.parts(scores, torch.tensor([positive])).reshape(2, FEW)
    assert parts[1, -1] == 1


def test_blocks_of_a_large_total_are_added_up():
    cells = Counting(Schema(3, 40), MANY)  # 200 items a block
    scores, y = torch.randn(700, 40), torch.randint(0, 40, (700,))
    assert np.allclose(cells.total(scores, y), cells.parts(scores, y).double().sum(dim=0))
