"""Which vectors lie in the row space of a weight step, as far as its errors let one say."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

EDGE = 1.5
"""Singular values count from this many times the largest one that errors alone would have."""
NEAR = 4.0
"""A vector is in the space where it is this many times as far from it as errors explain, or nearer."""
LEAST = 1e-6
"""Share of a vector's length that single precision explains."""


@dataclass(frozen=True)
class Span:
    """The row space of a step of a matrix ``[rows, columns]``.

    Attributes:
        basis: ``[columns, rank]`` orthonormal.
        values: ``[rank]`` singular values.
        noise: standard deviation of the error of one entry of the step.
    """

    basis: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    noise: float

    @property
    def rank(self) -> int:
        """How many independent inputs the layer had, at least."""
        return len(self.values)

    @property
    def full(self) -> bool:
        """Whether every vector is in it, so that it says nothing."""
        return self.rank >= len(self.basis)

    def far(self, vectors: np.ndarray) -> np.ndarray:
        """How far vectors ``[n, columns]`` are from the space, in multiples of what errors explain."""
        if self.full:
            return np.zeros(len(vectors))
        length = np.maximum(np.linalg.norm(vectors, axis=1), 1e-300)
        inside = vectors @ self.basis
        off = np.linalg.norm(vectors - inside @ self.basis.T, axis=1)
        # a vector is a combination of rows, each with its errors: as long as it takes
        errors = self.noise * np.linalg.norm(inside / self.values, axis=1)
        free = (len(self.basis) - self.rank) ** 0.5
        ratio: np.ndarray = off / (errors * free + LEAST * length)
        return ratio

    def holds(self, vectors: np.ndarray, share: float = 0.0) -> np.ndarray:
        """Which vectors ``[n, columns]`` are in the space, or off by this share of their length at most."""
        near: np.ndarray = self.far(vectors) <= NEAR
        if share:
            off = np.linalg.norm(vectors - vectors @ self.basis @ self.basis.T, axis=1)
            near |= off <= share * np.linalg.norm(vectors, axis=1)
        return near


def span_of(step: np.ndarray, before: np.ndarray, *, seen: bool = False) -> Span:
    """The row space of the step of a weight.

    Args:
        step: ``[rows, columns]`` how far the weight moved.
        before: ``[rows, columns]`` the weight that it moved from.
        seen: whether its errors are what the smallest singular values show (a grid, or noise); else those of
            single precision, in which weights are kept.
    """
    rows, columns = int(step.any(1).sum()), int(step.any(0).sum())  # a unit that never moved has no error
    _, values, right = np.linalg.svd(step, full_matrices=False)
    spacing = np.spacing(np.abs(before).astype(np.float32)).astype(np.float64)
    noise = 2 * float(np.sqrt(np.square(spacing).mean() / 12))
    small = min(rows, columns)
    if (
        seen and small > 8
    ):  # the fourth smallest of a square matrix of errors is 2 pi / sqrt(size) of their size
        noise = max(noise, float(values[small - 4]) * 0.16 * small**0.5)
    noise = max(noise, 1e-7 * float(np.sqrt(np.square(step).mean())), 1e-300)
    edge = EDGE * noise * (rows**0.5 + columns**0.5)
    rank = int((values > edge).sum())
    return Span(right[:rank].T, values[:rank], noise)
