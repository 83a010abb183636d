"""Metrics from cells: those of scikit-learn, up to the width of a bin, and never outside of their range."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.metrics.counting import FEW, MANY, Counting
from secure_fedgraph.metrics.figures import RANGES, Measured, headline, measured

SCHEMAS = {
    "two": Schema(3, 2),
    "two, the first positive": Schema(3, 2, positive=0),
    "four": Schema(3, 4),
    "labels": Schema(3, 3, task=Task.LABELS),
    "number": Schema(3, 1, task=Task.NUMBER, low=-2.0, high=6.0),
    "links": Schema(3, 2, task=Task.LINKS),
    "classes of links": Schema(3, 3, task=Task.LINK_CLASSES),
}


def items(schema: Schema, n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores that say something of the answers, and these."""
    draw = torch.Generator().manual_seed(seed)
    if schema.task == Task.NUMBER:
        y = torch.rand(n, generator=draw) * 8 - 2
        return ((y - 2) / 4 + 0.3 * torch.randn(n, generator=draw))[:, None], y
    if schema.task == Task.LINKS:
        scores = torch.randn(n, 21, generator=draw)
        scores[:, 0] += 1.0
        return scores, torch.ones(n, dtype=torch.int64)
    if schema.task == Task.LABELS:
        y = (torch.rand(n, schema.classes, generator=draw) < 0.3).float()
        return torch.randn(n, schema.classes, generator=draw) + 1.5 * (2 * y - 1), y
    y = torch.multinomial(torch.arange(1.0, schema.classes + 1), n, replacement=True, generator=draw)
    scores = torch.randn(n, schema.classes, generator=draw)
    return scores + 1.5 * torch.nn.functional.one_hot(y, schema.classes), y


def found(schema: Schema, scores: torch.Tensor, y: torch.Tensor, bins: int = MANY) -> dict[str, float]:
    cells = Counting(schema, bins)
    made = measured(cells, cells.total(scores, y).numpy(), intervals=False)
    assert made.items == pytest.approx(len(y))
    return {name: one.value for name, one in made.figures.items()}


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize(("bins", "near"), [(MANY, 4e-3), (FEW, 2e-2)])
def test_two_classes_as_scikit_learn_has_them(positive, bins, near):
    schema = Schema(3, 2, positive=positive)
    scores, y = items(schema, 3000)
    truth, logit = (y == positive).numpy(), (scores[:, positive] - scores[:, 1 - positive]).double().numpy()
    p, figures = 1 / (1 + np.exp(-logit)), found(schema, scores, y, bins)
    assert figures["auc"] == pytest.approx(sk.roc_auc_score(truth, logit), abs=near)
    assert figures["average_precision"] == pytest.approx(sk.average_precision_score(truth, logit), abs=near)
    assert figures["brier"] == pytest.approx(sk.brier_score_loss(truth, p), abs=near)
    assert figures["accuracy"] == pytest.approx(sk.accuracy_score(truth, logit >= 0))
    named = p >= figures["threshold"] - 1e-9  # an edge of a bin
    assert figures["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(truth, named))
    assert figures["f1"] == pytest.approx(sk.f1_score(truth, named))
    assert figures["f1_macro"] == pytest.approx(sk.f1_score(truth, named, average="macro"))


def test_the_threshold_is_the_validation_items():
    schema = Schema(3, 2)
    cells, (scores, y) = Counting(schema, MANY), items(schema, 2000)
    held_scores, held = items(schema, 2000, seed=1)
    test, held_out = cells.total(scores, y).numpy(), cells.total(held_scores, held).numpy()
    at = measured(cells, test, held_out, intervals=False).figures["threshold"].value
    logit = (held_scores[:, 1] - held_scores[:, 0]).double().numpy()
    named = 1 / (1 + np.exp(-logit)) >= at - 1e-9
    assert named.mean() == pytest.approx((held == 1).double().mean().item(), abs=1e-2)


@pytest.mark.parametrize("noise", [0.0, 2.4])
def test_without_validation_items_f1_says_more_than_scores_that_lie_close_together(noise):
    # a ridge model under noise: all scores in a few bins, and most items are positive
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.random(2000) < 0.7).long()
    logit = torch.from_numpy(0.6 + 0.25 * (y.numpy() - 0.7) + rng.normal(0, 0.2, 2000))
    cells = Counting(Schema(3, 2), FEW)
    counted = cells.total(torch.stack([0 * logit, logit], dim=1), y).numpy()
    figures = measured(cells, counted + rng.normal(0, noise, counted.shape), noise=noise, intervals=False)
    assert figures.figures["f1"].value > 0.7


@pytest.mark.parametrize("name", ["four", "classes of links"])
def test_several_classes_as_scikit_learn_has_them(name):
    schema = SCHEMAS[name]
    scores, y = items(schema, 3000)
    figures, shares = found(schema, scores, y), torch.softmax(scores, dim=1).double().numpy()
    shares = shares / shares.sum(axis=1, keepdims=True)
    truth, said = y.numpy(), scores.argmax(dim=1).numpy()
    one_hot = np.eye(schema.classes)[truth]
    assert figures["accuracy"] == pytest.approx(sk.accuracy_score(truth, said))
    assert figures["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(truth, said))
    assert figures["f1"] == pytest.approx(sk.f1_score(truth, said, average="macro"))
    assert figures["auc"] == pytest.approx(sk.roc_auc_score(truth, shares, multi_class="ovr"), abs=4e-3)
    expected = sk.average_precision_score(one_hot, shares)
    assert figures["average_precision"] == pytest.approx(expected, abs=4e-3)
    assert figures["brier"] == pytest.approx(((shares - one_hot) ** 2).sum(axis=1).mean(), abs=1e-2)


def test_labels_as_scikit_learn_has_them():
    schema = SCHEMAS["labels"]
    scores, y = items(schema, 3000)
    figures, truth = found(schema, scores, y), y.numpy()
    assert figures["accuracy"] == pytest.approx(((scores >= 0).numpy() == (truth > 0)).mean())
    assert figures["f1"] == pytest.approx(sk.f1_score(truth, scores.numpy() >= 0, average="macro"))
    assert figures["auc"] == pytest.approx(sk.roc_auc_score(truth, scores.numpy()), abs=4e-3)
    assert figures["average_precision"] == pytest.approx(
        sk.average_precision_score(truth, scores.numpy()), abs=4e-3
    )


def test_numbers_are_exact():
    schema = SCHEMAS["number"]
    scores, y = items(schema, 3000)
    said = (scores[:, 0].clamp(-1, 1).double() * 4 + 2).numpy()
    figures, truth = found(schema, scores, y), y.double().numpy()
    assert figures["mae"] == pytest.approx(sk.mean_absolute_error(truth, said), rel=1e-5)
    assert figures["rmse"] == pytest.approx(math.sqrt(sk.mean_squared_error(truth, said)), rel=1e-5)
    assert figures["r2"] == pytest.approx(sk.r2_score(truth, said), abs=1e-4)


def test_links_are_ranked_among_wrong_ones():
    schema = SCHEMAS["links"]
    scores, y = items(schema, 2000)
    figures = found(schema, scores, y)
    truth = np.concatenate([np.ones(2000), np.zeros(2000 * 20)])
    said = np.concatenate([scores[:, 0].numpy(), scores[:, 1:].reshape(-1).numpy()])
    assert figures["auc"] == pytest.approx(sk.roc_auc_score(truth, said), abs=4e-3)
    ahead = (scores[:, 1:] >= scores[:, :1]).sum(dim=1)
    assert figures["hits"] == pytest.approx(float((ahead < 10).float().mean()))


def check_ranges(made: Measured) -> None:
    for name, one in made.figures.items():
        low, high = RANGES.get(name, (0.0, 1.0))
        slack = 1e-9
        assert low - slack <= one.low <= one.value + slack, (name, one)
        assert one.value - slack <= one.high <= high + slack, (name, one)
    assert all(0 <= share <= 1 for share in made.shares)
    assert not made.shares or sum(made.shares) == pytest.approx(1.0)
    assert made.commonest is None or 0 <= made.commonest <= 1


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(SCHEMAS)),
    seed=st.integers(0, 2**32 - 1),
    noise=st.sampled_from([0.0, 0.5, 5.0, 300.0, 1e6]),
    counts=st.sampled_from([0.0, 0.1, 10.0]),
)
def test_nothing_is_outside_of_its_range_whatever_the_cells(name, seed, noise, counts):
    rng, cells = np.random.default_rng(seed), Counting(SCHEMAS[name], FEW)
    tested, held = rng.poisson(counts, (2, cells.size)) + noise * rng.standard_normal((2, cells.size))
    check_ranges(measured(cells, tested, held if seed % 2 else None, noise, seed))


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("value", [0.0, -1e9, 1e9, math.inf, math.nan])
def test_cells_that_nobody_counted_give_figures_in_range_or_none(name, value):
    """A client that lies, or a sum that overflowed."""
    cells = Counting(SCHEMAS[name], FEW)
    for noise in (0.0, 2.0):
        check_ranges(measured(cells, np.full(cells.size, value), None, noise))


@pytest.mark.parametrize(
    ("name", "shares", "says"),
    [
        ("two", (0.9, 0.1), "auc"),
        ("two", (0.6, 0.4), "accuracy"),
        ("four", (0.8, 0.1, 0.05, 0.05), "balanced_accuracy"),
        ("four", (0.3, 0.3, 0.2, 0.2), "accuracy"),
        ("labels", (), "auc"),
        ("links", (), "auc"),
        ("number", (), "r2"),
    ],
)
def test_the_headline_follows_the_task(name, shares, says):
    assert headline(SCHEMAS[name], shares) == says


def test_shares_follow_the_classes_whichever_is_positive():
    y = torch.tensor([0, 0, 0, 1])
    for positive in (0, 1):
        cells = Counting(Schema(3, 2, positive=positive), FEW)
        made = measured(cells, cells.total(torch.zeros(4, 2), y).numpy())
        assert made.shares == (0.75, 0.25)
