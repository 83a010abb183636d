"""Public maps of features: what a linear model reads, so that it is not linear in what was given."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

_WHOLE = 2.0**18


def fourier(records: Tensor, width: int, scale: float, seed: int = 0) -> Tensor:
    """Random Fourier features: inner products that are Gaussian kernels of the distance, nearly.

    Guarantees:
        - every row has length 1, whatever is given: one record moves a sum of them by 1 at most;
        - a row depends on its own record, the arguments and nothing else, in no bit.

    Args:
        records: ``[n, given]``, cut to ±1.
        width: how many features, even.
        scale: the inverse width of the kernel, in units of the records' length.
        seed: public, the same for everybody who takes part.

    Returns:
        ``[n, width]``, float32.

    References:
        Rahimi and Recht, Random features for large-scale kernel machines, NeurIPS 2007.

    >>> near = fourier(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), 4096, 1.0)
    >>> round(float(near[0] @ near[1]), 1), round(math.exp(-(0.2**2 + 0.6**2) / 2), 1)
    (0.8, 0.8)
    """
    # whole numbers, whose sums are exact: how many rows there are decides no bit of one
    given = (records.double().nan_to_num().clamp(-1, 1) * _WHOLE).round()
    turned = scale * (given @ _directions(records.shape[1], width // 2, seed)) / _WHOLE**2
    return torch.cat([turned.cos(), turned.sin()], dim=1).float() / math.sqrt(width // 2)


@lru_cache(maxsize=4)
def _directions(given: int, width: int, seed: int) -> Tensor:
    drawn = torch.randn(given, width, generator=torch.Generator().manual_seed(seed))
    return (drawn.double() * _WHOLE).round()
