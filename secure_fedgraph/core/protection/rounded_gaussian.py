"""Continuous Gaussian draws, rounded to whole numbers: adding them to whole numbers costs no privacy.

Rounding ``v + N(0, sigma**2)`` for a whole ``v`` is the same as adding a rounded draw to ``v``. So whatever
the continuous mechanism guarantees, this one does, rounding being post-processing, and the accountants of
continuous noise hold as they are. The sum of several such draws is no rounding of their sum: shares of noise
are discrete Gaussians instead.

The mass of ``k`` is the integral of the density ``phi`` over ``[k - 1/2, k + 1/2]``. Its Taylor series around
``k`` has even terms only::

    phi(k) * sum over even n of He_n(k / sigma) / (sigma**n * n! * (n + 1) * 2**n)

with Hermite polynomials ``He``. Terms up to n = 14 are summed exactly. ``|He_16(z)| <= (|z| + 16)**16``, so
for ``sigma >= 512`` and ``|k| <= 11 sigma`` what is left is below ``2**-150``, and each weight gives up one
unit of ``2**-128`` for it. The table and the draws are those of the discrete Gaussian.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.protection.discrete_gaussian import (
    _MASS_BITS,
    _WEIGHT_BITS,
    LARGEST,
    DiscreteGaussian,
    _exponential,
    _masses,
)

LEAST = 512
_TERMS = 14


class RoundedGaussian(DiscreteGaussian):
    """Draws ``round(N(0, sigma**2))``.

    Guarantees:
        - one draw is within :attr:`total_variation` of the ideal one, ``n`` draws within ``n`` times that;
        - the rest as :class:`~secure_fedgraph.core.protection.discrete_gaussian.DiscreteGaussian`.

    Args:
        sigma: in whole steps; a whole number from 512 to 16384.

    Raises:
        BadInput: for another.

    >>> rounded_gaussian(512).total_variation < 2**-80
    True
    """

    __slots__ = ()

    def __init__(self, sigma: int) -> None:
        if sigma != int(sigma) or not LEAST <= sigma <= LARGEST:
            raise BadInput(
                f"sigma {sigma:g}: rounded noise needs a whole number of {LEAST} to {LARGEST:g} steps"
            )
        super().__init__(sigma)

    def _weights(self) -> tuple[list[int], int]:
        sigma, unit = int(self.sigma), 2**_MASS_BITS
        lowest, _ = _exponential(Fraction(1, 2 * sigma**2), unit)
        # the upper bound of sigma * sqrt(2 pi), in the same unit
        whole = math.isqrt(2 * sigma**2 * _pi_above(unit) * unit) + 1
        coefficients, denominator = _series(sigma)
        half = []
        for k, density in enumerate(_masses(lowest, unit, self.reach, up=False)):
            square, factor = k * k, 0
            for coefficient in reversed(coefficients):
                factor = factor * square + coefficient
            half.append(max(((density * factor // denominator) << _WEIGHT_BITS) // whole - 1, 0))
        left_over = 2**_WEIGHT_BITS - half[0] - 2 * sum(half[1:])
        half[0] += left_over
        return half, left_over


@functools.lru_cache(maxsize=8)
def rounded_gaussian(sigma: int) -> RoundedGaussian:
    """The sampler of that sigma; its table is made once.

    Raises:
        BadInput: as :class:`RoundedGaussian`.
    """
    return RoundedGaussian(sigma)


def _series(sigma: int) -> tuple[list[int], int]:
    """The polynomial in ``k**2`` that ``phi(k)`` is multiplied by: whole coefficients, one denominator."""
    polynomial = [Fraction(0)] * (_TERMS // 2 + 1)
    before, hermite = [1], [0, 1]  # He_0 and He_1, by powers
    for n in range(_TERMS + 1):
        if n % 2 == 0:
            scale = Fraction(1, sigma**n * math.factorial(n) * (n + 1) * 2**n)
            for power in range(0, n + 1, 2):
                polynomial[power // 2] += scale * before[power] / sigma**power
        # He_{n+2} = z He_{n+1} - (n + 1) He_n
        following = [0, *hermite]
        for power, value in enumerate(before):
            following[power] -= (n + 1) * value
        before, hermite = hermite, following
    denominator = math.lcm(*(c.denominator for c in polynomial))
    return [int(c * denominator) for c in polynomial], denominator


def _pi_above(unit: int) -> int:
    """A whole number of ``1 / unit`` that is above pi by less than 200 (Machin's formula)."""

    def arctangent(of: int) -> int:
        term, total, n = unit // of, 0, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term, n = term // (of * of), n + 2
        return total

    return 4 * (4 * arctangent(5) - arctangent(239)) + 1500
