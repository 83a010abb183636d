"""Histograms with noise: what they most likely were is nearer to the truth than what was counted."""

from __future__ import annotations

import numpy as np
import pytest

from secure_fedgraph.metrics.smoothing import smoothed, smoothed_pairs

BINS = 32


def truth(seed: int, items: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of two classes, the second rarer and further up."""
    rng = np.random.default_rng(seed)
    edges = np.linspace(-4, 4, BINS + 1)
    both = (rng.normal(-0.7, 1, items * 3 // 4), rng.normal(0.7, 1, items // 4))
    zeros, ones = (np.histogram(one, edges)[0].astype(float) for one in both)
    return zeros, ones


def test_without_noise_counts_stay():
    zeros, ones = truth(0)
    kept = smoothed_pairs(zeros[None], ones[None], 0.0)
    assert np.array_equal(kept[0][0], zeros)
    assert np.array_equal(kept[1][0], ones)
    assert np.array_equal(smoothed(zeros[None], 0.0)[0], zeros)


@pytest.mark.parametrize("noise", [1.0, 3.0, 10.0])
def test_what_is_likely_is_nearer_than_what_was_counted(noise):
    rng, before, after = np.random.default_rng(1), [], []
    for seed in range(20):
        both = np.stack(truth(seed))
        counted = both + rng.normal(0, noise, both.shape)
        likely = np.concatenate(smoothed_pairs(counted[:1], counted[1:], noise))
        assert likely.min() >= 0
        before.append(((np.maximum(counted, 0) - both) ** 2).sum())
        after.append(((likely - both) ** 2).sum())
    assert np.mean(after) < (0.6 if noise > 1 else 1.0) * np.mean(before)


def test_little_noise_changes_little():
    zeros, ones = truth(2, 100_000)
    likely = smoothed_pairs(zeros[None], ones[None], 1.0)
    assert np.abs(likely[0][0] - zeros).max() < 5
    assert np.abs(likely[1][0] - ones).max() < 5


@pytest.mark.parametrize("counts", [np.zeros(BINS), -np.ones(BINS), np.eye(BINS)[3], np.full(BINS, 1e6)])
def test_odd_histograms_give_finite_counts(counts):
    for noise in (0.1, 100.0):
        for kept in (smoothed(counts[None], noise), *smoothed_pairs(counts[None], counts[None], noise)):
            assert np.isfinite(kept).all()
            assert kept.min() >= 0
