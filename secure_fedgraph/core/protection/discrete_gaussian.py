"""Discrete Gaussian draws from the operating system's randomness, with a proved distance from the ideal.

Each value has a weight, a whole number of 2**-128. With ``L_k <= exp(-k**2 / (2 sigma**2))`` for ``|k| <=
reach`` and ``U`` at least the sum over all integers, enclosed by whole-number arithmetic with directed
rounding, the weight is ``floor(2**128 * L_k / U)``, so it is never above ``2**128`` times the ideal mass;
what is left up to ``2**128`` goes to the value 0. Table and ideal then share all but the left-over, so their
total variation distance is at most ``left-over / 2**128``: the cut tails, the rounding and the error of
the exponential are all in that one number, which is computed, not estimated. An alias table (Walker 1977,
Vose 1991) splits the weights over ``2**b`` columns without rounding.

A draw is one 64-bit word of AES-CTR: ``b`` bits choose the column, ``64 - b`` bits are compared with the
upper bits of its threshold, and where they are equal 64 more bits are, so all 128 count. Counter blocks
under one key never repeat, while uniform ones might: the difference is ``blocks**2 / 2**129`` a key by the
switching lemma, ``2**-110`` a draw when a key serves ``2**20`` words and the 64 more bits of as many, and it
is in the bound too. AES is assumed to be indistinguishable from a random permutation.

A draw under a key of 256 bits is a function of that key: every ``2**20`` words have a key derived from it,
and so have their further bits. Who has the key can draw the same values again, and so take them off.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from secure_fedgraph.core.crypto import KEY_BYTES, KeyStream, derive
from secure_fedgraph.core.errors import BadInput

SMALLEST, LARGEST = 2.0, 2.0**14
"""Standard deviations in whole steps: below, a sum of draws is too far from a discrete Gaussian; above, the
table takes megabytes and seconds, and more than a few hundred steps improve nothing."""
_CUT = Fraction(21, 2)
"""Standard deviations to the farthest value: beyond lies less than 2**-80."""
_WEIGHT_BITS = 128
_MASS_BITS = 256
_WORDS_A_KEY = 2**20
_REPEATS = Fraction(_WORDS_A_KEY, 2**130)
"""(words / 2)**2 / 2**129 a key, for one draw: the distance of counter blocks from uniform ones, of the words
and of the further bits."""
_BLOCK = 2**14
"""Words at a time: a block's buffers stay in the second-level cache."""


class DiscreteGaussian:
    """Draws from ``N_Z(0, sigma**2)``: mass proportional to ``exp(-k**2 / (2 sigma**2))`` on the integers.

    Guarantees:
        - one draw is within :attr:`total_variation` of the ideal one, ``n`` draws within ``n`` times that;
        - draws come from the operating system's randomness: no seed reproduces them, nothing is kept between
          calls, and processes that fork draw different values; draws under a key are the same for the same
          key, and for nobody without it;
        - the sequence of operations does not depend on the values, but for one draw in about 2**49 that needs
          more bits. The part of the table that is read does depend on them: who shares the cache may see it.

    Args:
        sigma: in whole steps; taken exactly as the float that it is.

    Raises:
        BadInput: for a sigma outside [2, 16384].

    References:
        Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020.

    >>> noise = discrete_gaussian(300.0)
    >>> noise.draw(5).shape, noise.reach, noise.total_variation < 2**-80
    ((5,), 3150, True)
    """

    __slots__ = ("_entries", "_finer", "_index_bits", "reach", "sigma", "total_variation")

    def __init__(self, sigma: float) -> None:
        if not SMALLEST <= sigma <= LARGEST + 0.01:  # NaN too; rounding adds a little
            raise BadInput(
                f"sigma {sigma:g}: discrete noise needs a standard deviation of {SMALLEST:g} to {LARGEST:g} "
                f"grid steps: use a {'coarser' if sigma > LARGEST else 'finer'} grid, or "
                f"{'less' if sigma > LARGEST else 'more'} noise"
            )
        self.sigma = float(sigma)
        self.reach: int = reach_of(self.sigma)
        """The largest absolute value of a draw."""
        half, left_over = _weights(Fraction(self.sigma), self.reach)
        # rounded up to the next float
        bound = math.nextafter(float(Fraction(left_over, 2**_WEIGHT_BITS) + _REPEATS), 1.0)
        self.total_variation: float = bound
        """A proved upper bound on the total variation distance of one draw from the ideal one."""
        self._index_bits = (2 * self.reach).bit_length()
        self._entries, self._finer = _alias_table([*half[:0:-1], *half], self._index_bits)

    def draw(self, size: int, key: bytes = b"") -> np.ndarray:
        """``size`` independent draws, int32.

        Args:
            key: 32 bytes of the operating system that serve this one call; by default fresh ones.
        """
        drawn = np.empty(size, dtype=np.int32)
        words, picked, scratch = (np.empty(min(size, _BLOCK), dtype=np.uint64) for _ in range(3))
        columns = np.uint64(2**self._index_bits - 1)
        stream = further = None
        for start in range(0, size, _BLOCK):
            part = start // _WORDS_A_KEY
            if start % _WORDS_A_KEY == 0:
                stream, further = _stream(key, b"words", part), None
            assert stream is not None
            stop = min(start + _BLOCK, size)
            w, e, s = (buffer[: stop - start] for buffer in (words, picked, scratch))
            stream.into(w.data)
            np.bitwise_and(w, columns, out=s)
            np.take(
                self._entries, s.view(np.int64), out=e, mode="clip"
            )  # no index is outside; this mode is faster
            np.bitwise_xor(w, e, out=s)
            ties = s <= columns
            # A word is (fraction, column) and an entry (threshold, alias), the fraction first: the smaller of
            # the two ends in the value that was drawn.
            np.minimum(w, e, out=s)
            if ties.any():
                further = further or _stream(key, b"further bits", part)
                s[ties] = self._settle(w[ties], e[ties], further)
            np.bitwise_and(s, columns, out=s)
            np.subtract(s.view(np.int64), self.reach, out=drawn[start:stop], casting="unsafe")
        return drawn

    def _settle(self, words: np.ndarray, entries: np.ndarray, further: KeyStream) -> np.ndarray:
        """Where the first bits of fraction and threshold are equal, 64 more decide (one draw in 2**49)."""
        more = np.empty(words.size, dtype=np.uint64)
        further.into(more.data)
        finer = self._finer[words & np.uint64(2**self._index_bits - 1)]
        return np.where(more < finer, words, entries)


def reach_of(sigma: float) -> int:
    """The largest absolute value of a draw of that sigma, without its table."""
    return math.ceil(_CUT * Fraction(sigma))


def _stream(key: bytes, purpose: bytes, part: int) -> KeyStream:
    """The stream of one purpose for a part of the words; a fresh one where there is no key."""
    if not key:
        return KeyStream(os.urandom(KEY_BYTES))
    return KeyStream(derive(key, b"noise: " + purpose + part.to_bytes(8, "little")))


@functools.lru_cache(maxsize=32)
def discrete_gaussian(sigma: float) -> DiscreteGaussian:
    """The sampler of that sigma; its table is made once.

    Raises:
        BadInput: as :class:`DiscreteGaussian`.
    """
    return DiscreteGaussian(sigma)


def _weights(sigma: Fraction, reach: int) -> tuple[list[int], int]:
    """The weights of 0, 1, ..., ``reach`` in units of 2**-128, and the left-over that 0 was given."""
    unit = 2**_MASS_BITS
    lowest, highest = _exponential(1 / (2 * sigma**2), unit)
    lower = list(_masses(lowest, unit, reach, up=False))
    upper = list(_masses(highest, unit, reach + 2, up=True))
    # beyond, each mass is at most the last ratio times the one before it: a geometric series
    beyond, last = upper[reach + 1], upper[reach + 2]
    tail = -(-beyond * beyond // (beyond - last))
    total = 2 * (sum(upper[1 : reach + 1]) + tail) + unit
    half = [(mass << _WEIGHT_BITS) // total for mass in lower]
    left_over = 2**_WEIGHT_BITS - half[0] - 2 * sum(half[1:])
    half[0] += left_over
    return half, left_over


def _exponential(x: Fraction, unit: int) -> tuple[int, int]:
    """Whole numbers of ``1 / unit`` around ``exp(-x)``, for x in (0, 1)."""
    # the series alternates and its terms fall, so it lies between any two sums that follow each other
    term = above = Fraction(1)
    for n in range(1, 1000, 2):
        below = above + (term := -term * x / n)
        if -term * unit < 1:
            return math.floor(below * unit), math.ceil(above * unit)
        above = below + (term := -term * x / (n + 1))
    raise AssertionError("x is not below 1")


def _masses(q: int, unit: int, most: int, *, up: bool) -> Iterator[int]:
    """``q**(k * k)`` for k in 0..most in whole numbers of ``1 / unit``, every product rounded one way."""
    add = unit - 1 if up else 0  # the unit is a power of two, and a shift rounds down
    mass, ratio = unit, q
    square = (q * q + add) >> _MASS_BITS
    for _ in range(most + 1):
        yield mass
        mass = (mass * ratio + add) >> _MASS_BITS
        ratio = (ratio * square + add) >> _MASS_BITS


def _alias_table(weights: list[int], index_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Each column's entry (upper bits of its threshold, then its alias) and its threshold's 64 lower bits."""
    columns = 2**index_bits
    capacity = 2 ** (_WEIGHT_BITS - index_bits)
    left = weights + [0] * (columns - len(weights))
    thresholds, alias = [0] * columns, list(range(columns))  # a column that stays so is its own alias
    short = [i for i, weight in enumerate(left) if weight < capacity]
    rich = [i for i, weight in enumerate(left) if weight > capacity]
    while short:
        i, giver = short.pop(), rich[-1]
        thresholds[i], alias[i] = left[i], giver
        left[giver] -= capacity - left[i]
        if left[giver] <= capacity:
            rich.pop()
            if left[giver] < capacity:
                short.append(giver)
    entries = [(t >> 64) << index_bits | a for t, a in zip(thresholds, alias, strict=True)]
    finer = [t & (2**64 - 1) for t in thresholds]
    return np.array(entries, dtype=np.uint64), np.array(finer, dtype=np.uint64)
