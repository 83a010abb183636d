"""Ridge regression with a ridge that the data choose: what attacks fit to shadow data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


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
