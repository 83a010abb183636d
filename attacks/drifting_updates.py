"""Single updates from sums over changing cohorts, where updates drift from round to round."""

from __future__ import annotations

from itertools import product

import numpy as np

_FLOOR = 1e-12
"""The least variance of what no component explains: sums are exact up to rounding."""
_COMMON, _DRIFTS, _FRESH = (0.0, 1.0, 10.0), (0.0, 1e-4, 1e-2, 1e-1), (_FLOOR, 1e-4, 1e-2, 1e-1, 1.0)


def identifiable_clients(cohorts: np.ndarray) -> np.ndarray:
    """Which clients' unit vectors lie in the row space of the participation matrix, ``[clients]``.

    Args:
        cohorts: ``[rounds, clients]`` of zeros and ones.

    >>> identifiable_clients(np.array([[1, 1, 1], [1, 1, 0]])).tolist()
    [False, False, True]
    """
    matrix = np.asarray(cohorts, dtype=np.float64)
    _, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    share = np.square(right[sizes > 1e-9 * sizes.max(initial=0.0)]).sum(0)
    mask: np.ndarray = share > 1 - 1e-9
    return mask


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
