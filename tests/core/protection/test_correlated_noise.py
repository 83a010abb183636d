"""Why no noise is correlated across rounds: some independent noise is at least as good, for every factor."""

from __future__ import annotations

import numpy as np
import pytest

ROUNDS = 6
_TURNS = 5_000
_CLOSE = 1e-10


def covering(second: np.ndarray, seed: int = 0) -> np.ndarray:
    """The least diagonal matrix above ``X = C^T C``, ``[T]``: its trace is the squared sensitivity of ``C``.

    Clients move round t by a vector ``v_t`` of length 1 at most. The sum over s, t of ``X_st v_s v_t`` is
    largest where each ``v_t`` points along ``sum_s X_st v_s``; the lengths of these are the diagonal.
    """
    rounds = len(second)
    along = np.random.default_rng(seed).normal(size=(rounds, rounds + 1))
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    lengths = np.zeros(rounds)
    for _ in range(_TURNS):
        pulled = second @ along
        before, lengths = lengths, np.linalg.norm(pulled, axis=1)
        along = pulled / lengths[:, None]
        if np.abs(lengths - before).max() < _CLOSE * lengths.max():
            break
    return lengths


def error(second: np.ndarray, readout: np.ndarray, squared_sensitivity: float) -> float:
    """The root of the summed squared errors of a read-out ``A``, at a noise multiplier of 1."""
    return float(np.sqrt(squared_sensitivity * np.trace(readout @ np.linalg.solve(second, readout.T))))


def root_of_sums(rounds: int, band: int) -> np.ndarray:
    """The square root of the matrix of prefix sums, cut to a band (Fichtenberger et al. 2023)."""
    column = np.zeros(rounds)
    column[0] = 1.0
    for k in range(1, min(band, rounds)):
        column[k] = column[k - 1] * (1 - 1 / (2 * k))
    places = np.subtract.outer(np.arange(rounds), np.arange(rounds))
    return np.where(places >= 0, column[np.clip(places, 0, None)], 0.0)


def factors() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    drawn = [np.tril(random.normal(size=(ROUNDS, ROUNDS))) + 2 * np.eye(ROUNDS) for _ in range(4)]
    return [*drawn, root_of_sums(ROUNDS, ROUNDS), root_of_sums(ROUNDS, 2)]


@pytest.mark.parametrize("factor", factors())
def test_independent_noise_of_the_same_sensitivity_is_at_least_as_good_at_every_readout(factor):
    second = factor.T @ factor
    diagonal = covering(second)
    assert np.linalg.eigvalsh(np.diag(diagonal) - second).min() > -1e-5 * diagonal.max()
    # the sensitivity is no larger than the trace, and some clients' vectors reach it
    random = np.random.default_rng(0)
    for _ in range(50):
        moved = random.normal(size=(ROUNDS, ROUNDS))
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        assert np.square(factor @ moved).sum() <= diagonal.sum() * (1 + 1e-6)
    for _ in range(20):
        readout = random.normal(size=(2, ROUNDS))
        ours = error(np.diag(diagonal), readout, diagonal.sum())
        assert ours <= error(second, readout, diagonal.sum()) * (1 + 1e-6)


def test_the_sensitivity_of_noise_that_never_cancels_is_that_of_aligned_clients():
    factor = root_of_sums(ROUNDS, ROUNDS)  # nothing in it is negative: all pull the same way
    second = factor.T @ factor
    assert covering(second).sum() == pytest.approx(second.sum(), rel=1e-6)
