"""Linear algebra that attacks share: what a row space gives away, drifting sums, ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

_FLOOR = 1e-12
"""The least variance of what no component explains: sums are exact up to rounding."""
_COMMON, _DRIFTS, _FRESH = (0.0, 1.0, 10.0), (0.0, 1e-4, 1e-2, 1e-1), (_FLOOR, 1e-4, 1e-2, 1e-1, 1.0)


def held(coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pseudo-inverse, and which unknowns' unit vectors lie in the row space ``[unknowns]``.

    ``e_i`` is in the row space of ``A`` where ``(A+ A)_ii = 1``; every solution then has the same row ``i``,
    that of ``A+ seen``.

    Args:
        coefficients: ``[equations, unknowns]``, small fractions or zeros and ones.

    >>> held(np.array([[1, 1, 1], [1, 1, 0]]))[1].tolist()
    [False, False, True]
    >>> held(np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]]))[1].tolist()
    [True, True, True]
    """
    left, sizes, right = np.linalg.svd(np.asarray(coefficients, dtype=np.float64), full_matrices=False)
    kept = sizes > 1e-8 * sizes.max(initial=0.0)
    right, sizes, left = right[kept], sizes[kept], left[:, kept]
    return right.T / sizes @ left.T, np.square(right).sum(0) > 1 - 1e-6


def groups(cohorts: np.ndarray) -> list[np.ndarray]:
    """Clients that were always in or out together, as index arrays."""
    _, group_of = np.unique(np.asarray(cohorts), axis=1, return_inverse=True)
    group_of = group_of.reshape(-1)
    return [np.flatnonzero(group_of == number) for number in range(group_of.max() + 1)]


def means(cohorts: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """``[clients, width]`` the expected mean update of each client over the rounds that it was in.

    A client's update of a round is taken to be Gaussian: a part that all clients have in common and a part of
    its own, each constant but for a random walk, and a part that is fresh every round. How large these are is
    chosen by the likelihood of the sums, so that updates that do not drift are solved for exactly.

    Args:
        cohorts: ``[rounds, clients]`` of zeros and ones.
        sums: ``[rounds, width]``.
    """
    cohorts = np.asarray(cohorts, dtype=np.float64)
    rounds, clients = cohorts.shape
    inner = sums @ sums.T
    walk = np.minimum.outer(np.arange(rounds), np.arange(rounds)).astype(np.float64)
    sizes = cohorts.sum(1)
    overlap = cohorts @ cohorts.T
    best: tuple[float, tuple[float, ...]] = (np.inf, ())
    for common, drift, fresh in product(_COMMON, _DRIFTS, _FRESH):
        spread = 1 + drift * walk
        cov = spread * overlap + common * spread * np.outer(sizes, sizes) + fresh * np.diag(sizes)
        sign, size = np.linalg.slogdet(cov)
        if sign <= 0:
            continue
        fit = np.trace(np.linalg.solve(cov, inner)) / sums.size
        loss = np.log(max(fit, 1e-300)) * rounds + size
        best = min(best, (float(loss), (common, drift, fresh)))
    common, drift, fresh = best[1]
    spread = 1 + drift * walk
    cov = spread * overlap + common * spread * np.outer(sizes, sizes) + fresh * np.diag(sizes)
    weights = np.linalg.solve(cov, sums)
    expected = np.zeros((clients, sums.shape[1]))
    for client in range(clients):
        averaging = cohorts[:, client] / max(cohorts[:, client].sum(), 1)
        cross = (averaging @ spread) * cohorts[:, client] + common * (averaging @ spread) * sizes
        cross += fresh * averaging * cohorts[:, client]
        expected[client] = cross @ weights
    return expected


def fitted(inputs: np.ndarray, outputs: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The linear map with least generalised cross-validation error over ridges (Golub et al. 1979).

    Args:
        inputs: ``[examples, inputs]``; each column is scaled to deviation 1.
        outputs: ``[examples, outputs]``.

    Returns:
        ``[rows, inputs] -> [rows, outputs]``.

    >>> x = np.arange(6.0)[:, None]
    >>> fitted(x, 2 * x)(np.array([[10.0]])).round(2).tolist()
    [[19.75]]
    """
    middle, scale, usual = inputs.mean(0), inputs.std(0) + 1e-6, outputs.mean(0)
    left, sizes, right = np.linalg.svd((inputs - middle) / scale, full_matrices=False)
    seen, best = left.T @ (outputs - usual), (np.inf, np.zeros(0))
    outside = np.square(outputs - usual).sum() - np.square(seen).sum()
    for ridge in 10.0 ** np.arange(-1, 6):
        kept = sizes**2 / (sizes**2 + ridge)
        error = outside + np.square((1 - kept)[:, None] * seen).sum()
        best = min(best, (error / (len(inputs) - kept.sum()) ** 2, kept), key=lambda one: one[0])
    kept = best[1]
    weights = right.T @ ((kept / np.maximum(sizes, 1e-12))[:, None] * seen)
    return lambda rows: (rows - middle) / scale @ weights + usual
