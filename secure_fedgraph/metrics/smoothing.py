"""Histograms that carry noise: what they most likely were."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_WIDTHS, _CENTRES = (0.03, 0.06, 0.1, 0.15, 0.25, 0.5), 12
"""Of the curves that are tried: how wide one is and where its middle lies, as shares of all bins."""
_LENGTHS, _HEIGHTS = (1.5, 3.0, 6.0), (0.25, 0.5, 1.0, 2.0)
"""How far a bin differs from the curve as its neighbours do, in bins; and how much, as a share of it."""


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
    return np.maximum(found, 0.0) * total[:, None]


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
    return made
