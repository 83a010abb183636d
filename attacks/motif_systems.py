"""Prototypes as linear equations in graphs' embeddings, and which embeddings they give away."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

TOLERANCE = 1e-8
"""Singular values below this share of the largest count as zero: the coefficients are small fractions."""


@dataclass(frozen=True)
class Solution:
    """What a system ``coefficients @ embeddings = seen`` gives away.

    Args:
        embeddings: ``[graphs, width]``, the smallest solution; right where ``solved``.
        solved: ``[graphs]`` whether a graph's unit vector lies in the row space.
        rank: of the coefficients.
    """

    embeddings: np.ndarray = field(repr=False)
    solved: np.ndarray = field(repr=False)
    rank: int


def solve(coefficients: np.ndarray, seen: np.ndarray) -> Solution:
    """Every embedding that follows from linear equations.

    ``e_i`` is in the row space of ``A`` where ``(A+ A)_ii = 1``; then every solution has the same row ``i``,
    that of ``A+ seen``.

    Args:
        coefficients: ``[equations, graphs]``.
        seen: ``[equations, width]``.

    >>> a = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 0]])
    >>> solve(a, a @ np.eye(3)).solved.tolist()
    [True, True, True]
    >>> solve(a[1:], a[1:] @ np.eye(3)).solved.tolist()
    [False, False, False]
    """
    left, sizes, right = np.linalg.svd(coefficients.astype(np.float64), full_matrices=False)
    rank = int((sizes > TOLERANCE * sizes.max(initial=0.0)).sum())
    right, sizes, left = right[:rank], sizes[:rank], left[:, :rank]
    share = np.square(right).sum(0)
    embeddings = right.T @ ((left.T @ seen) / sizes[:, None])
    return Solution(embeddings, share > 1 - 1e-6, rank)
