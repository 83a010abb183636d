"""Continuous Gaussian noise, rounded at random to whole numbers: that costs what the continuous noise costs.

A continuous Gaussian of deviation ``sigma`` around a whole number, rounded by a discrete Gaussian of
``ROUNDED`` steps, is a discrete Gaussian of variance ``sigma**2 + ROUNDED**2`` but for a factor of at most
``exp(5 exp(-2 pi**2 ROUNDED**2))`` (``docs/guarantees.md``). Rounding is post-processing, so the accountants
of continuous noise hold as they are. The sum of several such draws is no rounding of their sum: shares of
noise are discrete Gaussians instead.
"""

from __future__ import annotations

import functools
import math

from secure_fedgraph.core.accounting.events import ROUNDED
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.protection.discrete_gaussian import LARGEST, DiscreteGaussian

LEAST = 512


class RoundedGaussian(DiscreteGaussian):
    """Draws of a continuous Gaussian, rounded at random.

    Guarantees:
        - one draw is within :attr:`total_variation` of the ideal one, ``n`` draws within ``n`` times that;
        - the rest as :class:`~secure_fedgraph.core.protection.discrete_gaussian.DiscreteGaussian`.

    Args:
        sigma: of the continuous noise, in whole steps; a whole number from 512 to 16384.

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
        super().__init__(math.nextafter(math.hypot(sigma, ROUNDED), math.inf))
        apart = math.expm1(5 * math.exp(-2 * (math.pi * ROUNDED) ** 2))
        self.total_variation = math.nextafter(self.total_variation + apart, 1.0)


@functools.lru_cache(maxsize=8)
def rounded_gaussian(sigma: int) -> RoundedGaussian:
    """The sampler of that sigma; its table is made once.

    Raises:
        BadInput: as :class:`RoundedGaussian`.
    """
    return RoundedGaussian(sigma)
