"""A loss for labels that were randomised: the model is fitted to the true ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(scores: Tensor, y: Tensor, truth: float = 1.0) -> Tensor:
    """The mean cross entropy of labels of which each is true with a known probability.

    Where ``truth`` is less than 1, what the model says about true classes is first turned into what it says
    about randomised ones: ``truth p(c) + (1 - truth) / (K - 1) (1 - p(c))``. The loss is least where ``p`` is
    the distribution of the true labels, so a model does not learn the noise however long it trains.

    Args:
        scores: of classes, ``[n, K]``.
        y: labels ``[n]``, any other class as likely as the next where they are not true.
        truth: the probability that a label is true, above ``1 / K``.

    References:
        Patrini et al., CVPR 2017 (forward correction).

    >>> sure, y = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([0, 0])
    >>> bool(cross_entropy(sure, y, truth=0.75) < cross_entropy(sure, y))
    True
    """
    if truth >= 1.0:
        return F.cross_entropy(scores, y)
    other = (1.0 - truth) / (scores.shape[1] - 1)
    # in logarithms, so that a sure model has no infinite loss and a finite gradient
    kept = F.log_softmax(scores, dim=1) + scores.new_tensor(max(truth - other, 0.0)).log()
    randomised = torch.logaddexp(kept, torch.full_like(kept, other).log())
    return F.nll_loss(randomised, y)
