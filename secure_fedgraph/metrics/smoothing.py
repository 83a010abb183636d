"""Histograms that carry noise: what they most likely were."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_WIDTHS, _CENTRES = (0.03, 0.06, 0.1, 0.15, 0.25, 0.5), 12
"""Of the curves that are tried: how wide one is and where its middle lies, as shares of all bins."""
_LENGTHS, _HEIGHTS = (1.5, 3.0, 6.0), (0.25, 0.5, 1.0, 2.0)
"""How far a bin differs from the curve as its neighbours do, in bins; and how much, as a share of it."""
_JUMPS = (0.03, 0.1, 0.3, 1.0)
"""How much each bin may hold by itself where no curve fits, as a share of all: scores that are all alike."""
_STEPS, _FAR, _STEEP, _STEEPEST = 30, 8.0, 16.0, 32.0
"""Of a regression on scores: steps, the largest offset, the usual slope and the largest, over all bins."""
_DIFFERENCES = (0.0, 0.15, 0.4, 1.0)
"""How much a bin differs from the regression, as a share of it."""


def smoothed(counts: Array, noise: float) -> Array:
    """What histograms most likely were, given what was counted with noise; nothing is negative.

    A histogram is taken for a curve around one middle and smooth differences from it, whose size and place
    are those under which the counts are most likely. So what lies far from all else is taken for noise.

    Args:
        counts: ``[many, bins]``.
        noise: the standard deviation of the noise on each; 0 leaves counts as they are.

    Returns:
        ``[many, bins]``, 0 or more.

    References:
        Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.1.

    >>> smoothed(np.array([[0.0, 4.0, 5.0, 0.0]]), 0.0).tolist()
    [[0.0, 4.0, 5.0, 0.0]]
    """
    if not noise:
        return np.maximum(counts, 0.0)
    total = np.maximum(counts.sum(axis=1), noise)
    shares, level = counts / total[:, None], (noise / total) ** 2  # so that one set of curves serves all
    best, found = np.full(len(counts), -np.inf), np.zeros_like(counts)
    for curve, values, vectors in _curves(counts.shape[1]):
        left = (shares - curve) @ vectors
        spread = values + level[:, None]
        likelihood = -(left**2 / spread + np.log(spread)).sum(axis=1)
        better = likelihood > best
        if better.any():
            found[better] = curve + (left[better] * (values / spread[better])) @ vectors.T
            best[better] = likelihood[better]
    return np.asarray(np.maximum(found, 0.0) * total[:, None])


@functools.lru_cache(maxsize=2)
def _curves(bins: int) -> list[tuple[Array, Array, Array]]:
    """Every curve, with the variances of the differences from it and their directions."""
    places = (np.arange(bins) + 0.5) / bins
    apart = (places[:, None] - places[None]) * bins
    made = []
    for width in _WIDTHS:
        for centre in np.linspace(0.06, 0.94, _CENTRES):
            curve = np.exp(-((places - centre) ** 2) / (2 * width**2))
            curve /= curve.sum()
            for length in _LENGTHS:
                alike = np.exp(-(apart**2) / (2 * length**2)) * curve * curve[:, None]
                values, vectors = np.linalg.eigh(alike)
                values = np.maximum(values, 0.0)
                made += [(curve, height**2 * values, vectors) for height in _HEIGHTS]
    made += [(np.zeros(bins), np.full(bins, share**2), np.eye(bins)) for share in _JUMPS]
    return made


def smoothed_pairs(zeros: Array, ones: Array, noise: float) -> tuple[Array, Array]:
    """What the histograms of two classes over one score most likely were.

    Both together are :func:`smoothed`; in which of the two an item is depends on its score as in a logistic
    regression, and bins differ from that by what makes the counts most likely. So few counts of one class say
    what they can of how the classes are ordered, and many say it bin by bin.

    Args:
        zeros, ones: ``[many, bins]`` each.
        noise: the standard deviation of the noise on each; 0 leaves them as they are.

    Returns:
        Both, 0 or more.
    """
    if not noise:
        return np.maximum(zeros, 0.0), np.maximum(ones, 0.0)
    both = smoothed(zeros + ones, noise * math.sqrt(2))
    bins = zeros.shape[1]
    score = (np.arange(bins) + 0.5) / bins * 2 - 1
    start = np.log(np.maximum(ones.sum(1), noise) / np.maximum(zeros.sum(1), noise))
    place, slope = np.clip(start, -_FAR, _FAR), np.zeros(len(zeros))
    prior = (noise / _STEEP) ** 2
    for _ in range(_STEPS):
        share = 1 / (1 + np.exp(-(place[:, None] + slope[:, None] * score)))
        missed = (ones - zeros - both * (2 * share - 1)) / 2
        grows = both * share * (1 - share)
        a, b, c = (grows**2).sum(1) + 1e-6, (grows**2 * score).sum(1), (grows**2 * score**2).sum(1) + prior
        up, tilt = (grows * missed).sum(1), (grows * missed * score).sum(1) - prior * slope
        size = a * c - b**2
        place = np.clip(place + np.clip((c * up - b * tilt) / size, -1, 1), -_FAR, _FAR)
        slope = np.clip(slope + np.clip((a * tilt - b * up) / size, -4, 4), -_STEEPEST, _STEEPEST)
    share = 1 / (1 + np.exp(-(place[:, None] + slope[:, None] * score)))
    return _near(zeros, both * (1 - share), noise), _near(ones, both * share, noise)


def _near(counts: Array, curve: Array, noise: float) -> Array:
    """A curve, and of each bin's difference from it as much as is likely to be no noise."""
    best, found = np.full(len(counts), -np.inf), curve.copy()
    whole = np.maximum(counts.sum(axis=1, keepdims=True), noise)
    ways = [(height * curve) ** 2 for height in _DIFFERENCES]
    ways += [np.broadcast_to((share * whole) ** 2, curve.shape) for share in _JUMPS]
    for values in ways:
        spread = values + noise**2
        likelihood = -((counts - curve) ** 2 / spread + np.log(spread)).sum(axis=1)
        better = likelihood > best
        found[better] = (curve + (counts - curve) * values / spread)[better]
        best = np.maximum(best, likelihood)
    return np.maximum(found, 0.0)
