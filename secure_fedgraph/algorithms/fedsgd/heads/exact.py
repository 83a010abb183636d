"""Products of matrices without rounding, so that no row of one depends on which other rows there are.

Kernels add up in an order that follows from the shapes, so the last bits of a row's product depend on how
many other rows there are and where it stands among them. A server chooses the weights, and can choose them so
that these bits decide a record's gradient: then one record that comes or goes changes those of others, and a
sum moves by more than one clip. Sums of whole numbers below 2**53 are exact in float64 in every order.
"""

from __future__ import annotations

import math

from torch import Tensor

EXACT = 53
"""Bits of the whole numbers that float64 holds."""


def on_grid(values: Tensor, bound: float, bits: int) -> Tensor:
    """Values cut to ``±bound`` and rounded to multiples of ``bound / 2**bits``, float64.

    Args:
        values: any; what is not a number counts as 0.
        bound: a power of two.
        bits: how many multiples lie between 0 and the bound, as a power of two.

    >>> import torch
    >>> on_grid(torch.tensor([0.3, -7.0, math.nan]), 2.0, 3).tolist()
    [0.25, -2.0, 0.0]
    """
    step = bound / 2**bits
    rounded: Tensor = (values.double().nan_to_num().clamp(-bound, bound) / step).round() * step
    return rounded


def bits_left(bits: int, terms: int) -> int:
    """Bits of the other factor, where so many products of a factor of ``bits`` bits are added up exactly.

    >>> bits_left(18, 500)
    26
    """
    return EXACT - bits - math.ceil(math.log2(max(terms, 1)))


def power_above(value: float) -> float:
    """The least power of two that is not below a positive number.

    >>> power_above(5.0), power_above(8.0)
    (8.0, 8.0)
    """
    return 2.0 ** math.ceil(math.log2(value))
