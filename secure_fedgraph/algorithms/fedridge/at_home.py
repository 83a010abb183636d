"""What an owner makes of a released regression with its own records: it costs nothing, for nothing leaves."""

from __future__ import annotations

import torch
from torch import Tensor

SHARES = (0.0, 0.5, 1.0)
"""How much of the released model's outputs is kept: none (the owner alone), half, all."""
RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, float("inf"))
"""The last leaves the released model as it is."""


def personal(
    weights: Tensor,
    z: Tensor,
    targets: Tensor,
    held_z: Tensor,
    held_targets: Tensor,
    shares: tuple[float, ...] = SHARES,
) -> Tensor:
    """The released weights, gated, and a personal regression of what they leave over.

    ``share W + V``, where ``V`` is the ridge regression of ``targets - share z W`` on the owner's records:
    APFLGate's personal branch and its gate. Outputs are linear, so a mixture of outputs is one of weights.
    The share and the ridge are those of the least squared error on the owner's records, each left out of its
    own ``V`` in turn (in closed form), and on those that it holds out.

    Args:
        weights: ``W``, ``[width, outputs]``.
        z, targets: the owner's training records, ``[n, width]`` and ``[n, outputs]``.
        held_z, held_targets: those that are held out.
        shares: of the released model that are tried.

    Returns:
        ``[width, outputs]``.

    References:
        Deng et al., Adaptive Personalized Federated Learning, 2020; Allen, The relationship between variable
        selection and data augmentation and a method for prediction, Technometrics 1974 (leaving one out).

    >>> z, t = torch.eye(2).repeat(9, 1), torch.tensor([[1.0], [-1.0]]).repeat(9, 1)
    >>> personal(torch.tensor([[0.0], [9.0]]), z, t, z[:0], t[:0]).round(decimals=1).flatten()
    tensor([ 1., -1.])
    """
    if not len(z):
        return weights
    of, z, held_z = weights.double(), z.double(), held_z.double()
    left, lengths, right = torch.linalg.svd(z, full_matrices=False)
    best: tuple[float, Tensor] | None = None
    for share in shares:
        rest, held = targets - share * z @ of, held_targets - share * held_z @ of
        along = left.T @ rest
        for ridge in RIDGES:
            kept = lengths**2 / (lengths**2 + ridge)
            own = right.T @ (along * (lengths / (lengths**2 + ridge))[:, None])
            apart = (rest - left @ (kept[:, None] * along)) / (1 - (left**2) @ kept)[:, None]
            error = float(apart.square().sum() + (held - held_z @ own).square().sum())
            if best is None or error < best[0]:
                best = (error, share * of + own)
    assert best is not None
    return best[1].to(weights.dtype)
