"""Metrics from cells, with intervals that hold the sample and the noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.metrics.counting import SPAN, Counting
from secure_fedgraph.metrics.smoothing import smoothed, smoothed_pairs

Array = NDArray[np.float64]
Figures = dict[str, float]

TIMES, ENDS = 200, (2.5, 97.5)
"""How often items and noise are drawn again for an interval, and where it ends, in percent."""
TAILS = 3.0
"""How far squared errors vary, in squares of their mean: 2 of normal errors, 5 of Laplace's."""
MOST = 1e12
"""Items that a cell can hold."""
RANGES = {"mae": (0.0, math.inf), "rmse": (0.0, math.inf), "r2": (-1.0, 1.0), "brier": (0.0, 2.0)}
"""Where a metric can lie, unless from 0 to 1."""
RARE = 0.35
"""Below this share of the rarer of two classes the AUC says more than the accuracy."""


@dataclass(frozen=True)
class Figure:
    """A metric with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Measured:
    """What cells say.

    Args:
        figures: by name; without one where nothing can be said.
        items: how many were counted.
        shares: of the classes, most common first where there are classes; empty otherwise.
        headline: the metric that says most on such data.
    """

    figures: Mapping[str, Figure]
    items: float
    shares: tuple[float, ...]
    headline: str

    @property
    def commonest(self) -> float | None:
        """What always naming the commonest class would score; None where there are no classes."""
        return max(self.shares) if self.shares else None


def measured(
    cells: Counting,
    tested: Array,
    held_out: Array | None = None,
    noise: float = 0.0,
    seed: int = 0,
    intervals: bool = True,
) -> Measured:
    """All metrics of a task from its cells.

    Guarantees:
        - no figure is outside of its metric's range, whatever the noise.

    Args:
        cells: what the cells are.
        tested: of the test items, ``[size]``.
        held_out: of the validation items: they choose the threshold of two classes, from where on as many
            are named positive as are. Without any the test items do.
        noise: the standard deviation of the noise on each cell.
        seed: of the draws for intervals.
        intervals: whether these are asked for; else both ends are the figure.
    """
    given = np.stack([tested, np.zeros_like(tested) if held_out is None else held_out]).astype(np.float64)
    # what no owner counted, and an owner that lies may send, spoils figures and ends nothing
    parts = np.clip(np.nan_to_num(given), -MOST, MOST)
    kept = _likely(cells, parts[None], noise)
    figures = _figures(cells, kept)
    now = {name: float(value[0]) for name, value in figures.items()}
    again: dict[str, Array] = {}
    if intervals:
        rng = np.random.default_rng(seed)
        drawn = _drawn(cells, kept[0], rng)
        if noise:
            noised = drawn + rng.normal(0.0, noise, drawn.shape)
            drawn = _likely(cells, noised if held_out is not None else _first_alone(noised), noise)
        again = _figures(cells, drawn)
    found = {}
    for name, value in now.items():
        if math.isnan(value):
            continue
        value = min(value, RANGES.get(name, (0.0, 1.0))[1])  # sums of shares may round above it
        low = high = value
        ends = again.get(name)
        if ends is not None and not np.isnan(ends).all():
            low, high = _ends(name, value, np.nanpercentile(ends, ENDS))
        found[name] = Figure(value, low, high)
    items, shares = _shares(cells, kept[0][0])
    return Measured(found, items, shares, headline(cells.schema, shares))


def _ends(name: str, value: float, drawn: Array) -> tuple[float, float]:
    """An interval from figures of items drawn again, as they are and mirrored at the figure itself.

    What is drawn again is off as the figure is, so the truth may be as far on the other side.
    """
    low, high = RANGES.get(name, (0.0, 1.0))
    ends = (float(drawn[0]), float(drawn[1]), 2 * value - float(drawn[1]), 2 * value - float(drawn[0]), value)
    return max(min(ends), low), min(max(ends), high)


def headline(schema: Schema, shares: tuple[float, ...] = ()) -> str:
    """The metric that says most on such data.

    Args:
        schema: of the data.
        shares: of the classes.

    >>> headline(Schema(3, 2), (0.9, 0.1)), headline(Schema(3, 2), (0.5, 0.5))
    ('auc', 'accuracy')
    """
    if schema.task == Task.NUMBER:
        return "r2"
    if schema.task in (Task.LABELS, Task.LINKS):
        return "auc"
    if len(shares) == 2 and min(shares) < RARE:
        return "auc"
    return "balanced_accuracy" if len(shares) > 2 and max(shares) > 1 - RARE else "accuracy"


def _likely(cells: Counting, parts: Array, noise: float) -> Array:
    """Cells without their noise, as far as that is known: ``[many, 2, size]``."""
    if not noise or (cells.schema.task == Task.NUMBER and not cells.binned):
        return parts
    if cells.binned:
        return smoothed(parts.reshape(-1, cells.bins), noise).reshape(parts.shape)
    first, bins = cells._confused, cells.bins
    last = first + cells._histograms * 2 * bins
    kept = np.maximum(parts, 0.0)
    pairs = parts[..., first:last].reshape(-1, 2, bins)
    likely = np.stack(smoothed_pairs(pairs[:, 0], pairs[:, 1], noise), axis=1)
    kept[..., first:last] = likely.reshape(*parts.shape[:-1], last - first)
    return kept


def _first_alone(parts: Array) -> Array:
    """The cells of test items, and none of validation items."""
    return np.asarray(parts * np.array([1.0, 0.0])[:, None])


def _drawn(cells: Counting, kept: Array, rng: np.random.Generator) -> Array:
    """The cells of as many items drawn again, many times: ``[TIMES, 2, size]``."""
    if cells.schema.task == Task.NUMBER and not cells.binned:
        return _drawn_numbers(kept, rng)
    weights = np.ones(cells.size)
    first, last = cells._confused, cells._confused + cells._histograms * 2 * cells.bins
    weights[first:last] = cells.weight
    items = np.maximum(kept, 0.0) / weights
    # an item is in the histogram of every class, so these vary together, and their mean by more than if not
    together = np.ones(cells.size)
    together[first:last] = min(cells._histograms, 2)
    return rng.poisson(items / together, (TIMES, *items.shape)) * together * weights


def _drawn_numbers(kept: Array, rng: np.random.Generator) -> Array:
    """Sums of items drawn again, by the central limit: numbers as if normal, errors with longer tails."""
    items = np.maximum(kept[:, 0], 1.0)
    _, error, squared, mean, square = np.clip(kept / items[:, None], 0.0, 1.0).T
    spread, own = np.maximum(squared - error**2, 0.0), np.maximum(square - mean**2, 0.0)
    tails = np.minimum(TAILS * squared**2, squared * (1 - squared))  # no error in [0, 1] has more
    first, second, third = rng.normal(size=(3, TIMES, len(kept)))
    moved = [
        0 * first,
        first * np.sqrt(spread),
        first * np.sqrt(tails),
        second * np.sqrt(own),
        second * np.sqrt(own) * 2 * mean + third * own * math.sqrt(2),
    ]
    return np.asarray(kept + np.stack(moved, axis=-1) * np.sqrt(items)[:, None])


def _figures(cells: Counting, kept: Array) -> dict[str, Array]:
    """Metrics of many cells, ``[many]`` each; NaN where nothing can be said."""
    with np.errstate(divide="ignore", invalid="ignore"):
        test, held = kept[:, 0], kept[:, 1]
        if cells.schema.task == Task.NUMBER:
            return _of_numbers(cells.schema, _sums(cells, test) if cells.binned else test)
        return _of_two(cells, test, held) if cells.two else _of_many(cells, test)


def _sums(cells: Counting, binned: Array) -> Array:
    """The sums of numbers that bins stand for, ``[many, 5]``."""
    errors, numbers = binned[:, : cells.bins], binned[:, cells.bins :]
    mean, square = (one.numpy() for one in cells.errors())
    width = 1 / cells.bins
    middle = (np.arange(cells.bins) + 0.5) * width
    items, counted = errors.sum(axis=1), np.maximum(numbers.sum(axis=1), 1e-12)
    first, second = (numbers @ one / counted * items for one in (middle, middle**2 - width**2 / 12))
    return np.stack([items, errors @ mean, errors @ square, first, second], axis=1)


def _of_numbers(schema: Schema, sums: Array) -> dict[str, Array]:
    items = np.where(sums[:, 0] > 0.5, sums[:, 0], np.nan)
    half = (schema.high - schema.low) / 2 or 1.0
    absolute, squared, mean, square = (np.clip(sums[:, i] / items, 0.0, 1.0) for i in (1, 2, 3, 4))
    variance = np.maximum(square - mean**2, 0.0)
    return {
        "mae": absolute * 2 * half,
        "rmse": np.sqrt(squared) * 2 * half,
        "r2": np.clip(np.where(variance > 0, 1 - squared / variance, np.nan), -1.0, 1.0),
    }


def _histogram(cells: Counting, flat: Array) -> tuple[Array, Array]:
    """Counts of items of the class and of others, each ``[many, histograms, bins]``, in items."""
    first = cells._confused
    last = first + cells._histograms * 2 * cells.bins
    hist = flat[:, first:last].reshape(len(flat), cells._histograms, 2, cells.bins) / cells.weight
    return hist[:, :, 1], hist[:, :, 0]


def _auc(ones: Array, zeros: Array) -> Array:
    before = np.cumsum(zeros, axis=-1) - zeros / 2
    pairs = ones.sum(axis=-1) * zeros.sum(axis=-1)
    return np.where(pairs > 0, (ones * before).sum(axis=-1) / np.where(pairs > 0, pairs, 1), np.nan)


def _average_precision(ones: Array, zeros: Array) -> Array:
    """From the highest bin down: what one adds to recall, at the precision so far, its own half counted."""
    ones, zeros = ones[..., ::-1], zeros[..., ::-1]
    right = np.cumsum(ones, axis=-1) - ones / 2
    taken = right + np.cumsum(zeros, axis=-1) - zeros / 2
    precision = np.where(taken > 0, right / np.where(taken > 0, taken, 1), 0.0)
    total = ones.sum(axis=-1)
    return np.where(total > 0, (ones * precision).sum(axis=-1) / np.where(total > 0, total, 1), np.nan)


def _calibration(cells: Counting, ones: Array, zeros: Array) -> tuple[Array, Array]:
    """Brier score and calibration error: ``[many, histograms]`` each."""
    p = cells.probabilities().numpy()
    both = ones + zeros
    items = both.sum(axis=-1)
    items = np.where(items > 0, items, np.nan)
    brier = (ones * (1 - p) ** 2 + zeros * p**2).sum(axis=-1) / items
    error = np.abs(ones - p * both).sum(axis=-1) / items
    return brier, np.clip(error, 0.0, 1.0)


def _f1(right: Array, named: Array, true: Array) -> Array:
    total = named + true
    return np.where(true > 0, 2 * right / np.where(total > 0, total, 1), np.nan)


def _of_two(cells: Counting, test: Array, held: Array) -> dict[str, Array]:
    ones, zeros = (one[:, 0] for one in _histogram(cells, test))
    brier, error = _calibration(cells, ones, zeros)
    figures = {"auc": _auc(ones, zeros), "average_precision": _average_precision(ones, zeros)}
    if cells.schema.task == Task.LINKS:
        hits = test[:, 2 * cells.bins :]
        total = hits.sum(axis=-1)
        return {**figures, "hits": hits[:, 0] / np.where(total > 0, total, np.nan)}
    middle = cells.bins // 2
    n1, n0 = ones.sum(axis=-1), zeros.sum(axis=-1)
    items = np.where(n1 + n0 > 0, n1 + n0, np.nan)
    figures["accuracy"] = (ones[:, middle:].sum(axis=-1) + zeros[:, :middle].sum(axis=-1)) / items
    at = _threshold(cells, held, test)
    above = np.arange(cells.bins)[None] >= at[:, None]
    hit, false = (ones * above).sum(axis=-1), (zeros * above).sum(axis=-1)
    recall, kept_out = hit / np.where(n1 > 0, n1, np.nan), (n0 - false) / np.where(n0 > 0, n0, np.nan)
    figures |= {
        "balanced_accuracy": (recall + kept_out) / 2,
        "f1": _f1(hit, hit + false, n1),
        "f1_macro": (_f1(hit, hit + false, n1) + _f1(n0 - false, n0 - false + n1 - hit, n0)) / 2,
        "brier": brier,
        "calibration_error": error,
    }
    edges = 1 / (1 + np.exp(-_edges(cells)))
    return {**figures, "threshold": edges[at]}


def _edges(cells: Counting) -> Array:
    """The lower end of each bin, a logit."""
    span = SPAN[cells.bins]
    return np.arange(cells.bins) / cells.bins * 2 * span - span


def _threshold(cells: Counting, held: Array, test: Array) -> NDArray[np.int64]:
    """The bin from which on the positive class is named: as often as validation items are of it.

    Where validation items have one class only, or none are there, as often as test items are of it.
    """
    ones, zeros = (one[:, 0] for one in _histogram(cells, held))
    known = (ones.sum(axis=-1) > 0) & (zeros.sum(axis=-1) > 0)
    for_tests = (one[:, 0] for one in _histogram(cells, test))
    ones, zeros = (np.where(known[:, None], *both) for both in zip((ones, zeros), for_tests, strict=True))
    named = np.cumsum((ones + zeros)[:, ::-1], axis=-1)[:, ::-1]
    # of equally good ones the nearest to the middle
    near = np.abs(np.arange(cells.bins) - cells.bins // 2) * 1e-9
    chosen: NDArray[np.int64] = (np.abs(named - ones.sum(axis=-1, keepdims=True)) + near).argmin(axis=-1)
    return chosen


def _of_many(cells: Counting, test: Array) -> dict[str, Array]:
    ones, zeros = _histogram(cells, test)
    brier, error = _calibration(cells, ones, zeros)
    figures = {
        "auc": _mean(_auc(ones, zeros)),
        "average_precision": _mean(_average_precision(ones, zeros)),
        "calibration_error": _mean(error),
    }
    if cells.schema.task == Task.LABELS:
        middle = cells.bins // 2
        hit, false = ones[..., middle:].sum(axis=-1), zeros[..., middle:].sum(axis=-1)
        n1, n0 = ones.sum(axis=-1), zeros.sum(axis=-1)
        figures["accuracy"] = _mean((hit + n0 - false) / np.where(n1 + n0 > 0, n1 + n0, np.nan))
        figures["f1"] = figures["f1_macro"] = _mean(_f1(hit, hit + false, n1))
        return {**figures, "brier": _mean(brier)}
    named = test[:, : cells._confused].reshape(len(test), cells.classes, cells.classes)
    right = np.diagonal(named, axis1=1, axis2=2)
    true, said = named.sum(axis=2), named.sum(axis=1)
    total = true.sum(axis=1)
    figures |= {
        "accuracy": right.sum(axis=1) / np.where(total > 0, total, np.nan),
        "balanced_accuracy": _mean(right / np.where(true > 0, true, np.nan)),
        "f1": _mean(_f1(right, said, true)),
        "brier": np.clip(brier.sum(axis=1), 0.0, 2.0),  # of noisy sums
    }
    return {**figures, "f1_macro": figures["f1"]}


def _mean(values: Array) -> Array:
    """Over classes or labels, of those that occur."""
    known = ~np.isnan(values)
    number = known.sum(axis=1)
    return np.where(number > 0, np.where(known, values, 0).sum(axis=1) / np.maximum(number, 1), np.nan)


def _shares(cells: Counting, flat: Array) -> tuple[float, tuple[float, ...]]:
    """How many items there are, and the shares of the classes."""
    if cells.schema.task == Task.NUMBER:
        return float(flat[: cells.bins].sum() if cells.binned else flat[0]), ()
    if cells.schema.task == Task.LINKS:
        return float(flat[2 * cells.bins :].sum()), ()
    ones, zeros = _histogram(cells, flat[None])
    if cells.schema.task == Task.LABELS:
        return float((ones + zeros)[0, 0].sum()), ()
    if cells.two:
        counts = np.array([zeros[0, 0].sum(), ones[0, 0].sum()])
        counts = counts if cells.schema.positive == 1 else counts[::-1]
    else:
        counts = flat[: cells._confused].reshape(cells.classes, cells.classes).sum(axis=1)
    total = float(counts.sum())
    return total, tuple(float(one) / total for one in counts) if total > 0 else ()
