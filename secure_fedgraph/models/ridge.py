"""Ridge regression of classes on records, from moments that may carry noise."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

SIGNAL = torch.logspace(-7, 3, 101, dtype=torch.float64)
"""Variances of a weight that are tried."""
ERROR = torch.logspace(-3, 0.5, 36, dtype=torch.float64)
"""Variances of what a record's target is beside its prediction, as shares of a target's own."""
_LEAST = 1e-9


def targets(y: torch.Tensor, classes: int, norm: float) -> torch.Tensor:
    """One-hot labels, centred and of an L2 norm of ``norm``: ``[n, classes]``.

    >>> targets(torch.tensor([0, 1]), 2, 1.0)
    tensor([[ 0.7071, -0.7071],
            [-0.7071,  0.7071]])
    """
    centred = F.one_hot(y, classes).float() - 1 / classes
    return centred * (norm / math.sqrt(1 - 1 / classes))


def weights(
    second: torch.Tensor,
    classes: torch.Tensor,
    norm: float,
    second_noise: float = 0,
    classes_noise: float = 0,
) -> torch.Tensor:
    """Ridge regression from noisy moments: what noise left of ``(A + ridge I)^-1 B``.

    Nothing is chosen by hand. Eigenvalues of a symmetric matrix of noise lie below ``2 v sqrt(width)``: those
    of ``A`` below that say nothing and share what is left of its trace; those above are lengthened by noise,
    and their vectors turned, by known amounts (spiked Wigner matrices). Along an eigenvector with eigenvalue
    ``a`` the class sums are ``a w + sqrt(a) e + noise``, with weights ``w`` and errors ``e`` of unknown
    variances: those under which the class sums are most likely. All of it is post-processing.

    Args:
        second: ``A``, ``[width, width]``, symmetric, float64.
        classes: ``B``, ``[width, classes]``, float64.
        norm: of a target.
        second_noise: standard deviation ``v`` of the noise on ``A`` off its diagonal.
        classes_noise: the same on ``B``.

    Returns:
        ``[width, classes]``, float64.

    References:
        Benaych-Georges and Nadakuditi, The eigenvalues and eigenvectors of finite, low rank perturbations of
        large random matrices, Advances in Mathematics 2011, section 3.1; MacKay, Bayesian interpolation,
        Neural Computation 1992.

    >>> z = torch.eye(2, dtype=torch.float64).repeat(50, 1)
    >>> t = targets(torch.tensor([0, 1] * 50), 2, 1.0).double()
    >>> (z @ weights(z.T @ z, z.T @ t, 1.0)).argmax(1)[:4]
    tensor([0, 1, 0, 1])
    """
    values, vectors = spectrum(second, second_noise)
    along = vectors.T @ classes
    ridge = _ridge(values, along, norm, classes_noise)
    return vectors @ (along / (values + ridge)[:, None])


def spectrum(second: torch.Tensor, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvectors of noisy second moments, and how long records are along each, noise taken off.

    Returns:
        ``[width]`` and ``[width, width]``.
    """
    width = len(second)
    values, vectors = torch.linalg.eigh(second)
    edge = 2 * noise * math.sqrt(width)
    known = values > edge
    # with noise an eigenvalue a is a + edge^2 / 4a, and cos^2 of its vector's angle is 1 - edge^2 / 4a^2
    own = torch.where(known, (values + (values**2 - edge**2).clamp(min=0).sqrt()) / 2, 0.0)
    rest = (torch.diagonal(second).sum() - own.sum()).clamp(min=0) / max(int((~known).sum()), 1)
    straight = torch.where(known, 1 - (edge / 2) ** 2 / own.clamp(min=_LEAST) ** 2, 0.0).clamp(min=0)
    return (own * straight + rest * (1 - straight)).clamp(min=_LEAST), vectors


def _ridge(values: torch.Tensor, along: torch.Tensor, norm: float, noise: float) -> torch.Tensor:
    """What is added to each eigenvalue, from the variances under which the class sums are most likely."""
    size, classes = along.square().sum(1), along.shape[1]
    error = ERROR * (norm**2 / classes)
    variance = values**2 * SIGNAL[:, None, None] + values * error[:, None] + noise**2
    likelihood = -(classes * variance.log() + size / variance).sum(2)
    signal, kind = divmod(int(likelihood.argmax()), len(error))
    return (noise**2 / values + error[kind]) / SIGNAL[signal]
