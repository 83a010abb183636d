"""Why no noise is correlated across rounds: some independent noise is at least as good, for every factor."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import script

correlated = script("correlated_noise")
ROUNDS = 6


def factors() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    drawn = [np.tril(random.normal(size=(ROUNDS, ROUNDS))) + 2 * np.eye(ROUNDS) for _ in range(4)]
    return [*drawn, correlated.root_of_sums(ROUNDS, ROUNDS), correlated.root_of_sums(ROUNDS, 2)]


@pytest.mark.parametrize("factor", factors())
def test_independent_noise_of_the_same_sensitivity_is_at_least_as_good_at_every_readout(factor):
    second = factor.T @ factor
    diagonal = correlated.covering(second)
    assert np.linalg.eigvalsh(np.diag(diagonal) - second).min() > -1e-5 * diagonal.max()
    # the sensitivity is no larger than the trace, and some clients' vectors reach it
    random = np.random.default_rng(0)
    for _ in range(50):
        moved = random.normal(size=(ROUNDS, ROUNDS))
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        assert np.square(factor @ moved).sum() <= diagonal.sum() * (1 + 1e-6)
    for _ in range(20):
        readout = random.normal(size=(2, ROUNDS))
        ours = correlated.error(np.diag(diagonal), readout, diagonal.sum())
        assert ours <= correlated.error(second, readout, diagonal.sum()) * (1 + 1e-6)


def test_the_sensitivity_of_noise_that_never_cancels_is_that_of_aligned_clients():
    factor = correlated.root_of_sums(ROUNDS, ROUNDS)  # nothing in it is negative: all pull the same way
    second = factor.T @ factor
    assert correlated.covering(second).sum() == pytest.approx(second.sum(), rel=1e-6)
