"""64-bit colours of nodes: a hash of one value, and of a multiset of values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Colours = NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(value: Colours) -> Colours:
    """The finaliser of splitmix64: a bijection on 64 bits that scatters neighbouring values."""
    value = value + GOLDEN
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def sums(values: Colours, groups: NDArray[np.int64], size: int) -> Colours:
    """Sum of ``values`` per group modulo 2^64: a hash of a multiset if the values are hashes.

    >>> sums(np.array([1, 2, 4], dtype=np.uint64), np.array([1, 0, 1]), 3).tolist()
    [2, 5, 0]
    """
    order = np.argsort(groups, kind="stable")
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values[order], dtype=np.uint64)])
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(groups, minlength=size))])
    found: Colours = running[ends[1:]] - running[ends[:-1]]
    return found
