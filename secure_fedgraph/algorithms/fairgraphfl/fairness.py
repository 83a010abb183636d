"""What an agent is worth, what it is given for that and what it is paid: FairGraphFL's rules, pure.

Everything is float64 and a function of its arguments. ``agents`` is the first dimension everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from secure_fedgraph.core.errors import BadInput

SMALL = 1e-6
"""A sum of values at or below this is no scale to normalise by."""


def cosines(gradients: Tensor, aggregate: Tensor) -> Tensor:
    """``[agents]``: the alignment of each agent's gradient with the aggregate (Eq. 9); 0 where one is zero.

    Args:
        gradients: ``[agents, D]``.
        aggregate: ``[D]``.
    """
    gradients, aggregate = gradients.double(), aggregate.double()
    lengths = gradients.norm(dim=1) * aggregate.norm()
    return torch.where(lengths > 0, gradients @ aggregate / lengths.clamp(min=1e-300), 0.0)


def shares(values: Tensor) -> Tensor:
    """``[agents]`` weights ``ReLU(r_i) / sum ReLU(r_j)`` (Eq. 12, 13); all zero where no value is
    positive."""
    positive = values.double().clamp(min=0)
    total = positive.sum()
    return positive / total if float(total) > 0 else positive


def next_values(
    values: Tensor, alignment: Tensor, diversity: Tensor, rate: float = 0.05, beta_div: float = 1.0
) -> Tensor:
    """``[agents]``: the values after a round; they sum to 1 (Eq. 10).

    ``(1 - rate) r + rate (s + beta_div d)``, divided by its sum. With more than about twenty agents that work
    against each other the sum can vanish or turn negative, and dividing by it would reward the worst: then
    the values stay as they were.

    >>> next_values(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]))
    tensor([0.5227, 0.4773], dtype=torch.float64)
    """
    raw = (1 - rate) * values.double() + rate * (alignment.double() + beta_div * diversity.double())
    total = float(raw.sum())
    return raw / total if math.isfinite(total) and total > SMALL else values.double()


def next_shared_values(values: Tensor, alignment: Tensor, diversity: Tensor, rate: float = 0.05) -> Tensor:
    """``[agents]``: the values after a round where diversity is shared; not negative, of sum 1.

    ``(1 - rate) r + rate a``, with ``a`` in proportion to ``max(s, 0) d``. Alignment scales what an agent's
    graphs are worth, and is worth nothing alone. Where no product is positive the values stay.

    Args:
        values: of the round before.
        alignment: cosines with the aggregate.
        diversity: each agent's share of all structure above chance.

    >>> next_shared_values(torch.tensor([0.5, 0.5]), torch.tensor([0.4, 0.4]), torch.tensor([0.8, 0.2]), 0.5)
    tensor([0.6500, 0.3500], dtype=torch.float64)
    """
    earned = shares(alignment.double().clamp(min=0) * diversity.double())
    return (1 - rate) * values.double() + rate * earned if float(earned.sum()) > 0 else values.double()


def diversity(present: Tensor) -> Tensor:
    """``[agents]``: each agent's share of all distinct motifs (definition 2); 1 where there is none at all.

    Args:
        present: ``[agents, motifs]`` booleans.
    """
    everywhere = int(present.any(0).sum())
    if not everywhere:
        return torch.ones(len(present), dtype=torch.float64)
    return present.sum(1).double() / everywhere


def fractions(values: Tensor, beta_fair: float, argument: Literal["r", "Kr"] = "r") -> Tensor:
    """``[agents]`` in [0, 1]: the share of the aggregate's components that each agent earns (Eq. 4).

    ``tanh(beta r_i) / max_j tanh(beta r_j)`` for positive values and 0 for others. Values sum to 1, so for
    ``argument="r"`` the ratio is nearly ``r_i / max r_j`` whatever ``beta_fair`` in [0.5, 2]; ``"Kr"`` scales
    them to a mean of 1 first.
    """
    scale = len(values) if argument == "Kr" else 1
    positive = values.double() > 0
    earned = torch.where(positive, torch.tanh(beta_fair * scale * values.double()), 0.0)
    most = float(earned.max()) if len(earned) else 0.0
    return earned / most if most > 0 else earned


def largest(vector: Tensor, fraction: float) -> Tensor:
    """``[D]`` booleans: the ``floor(fraction * D)`` components that are largest by magnitude.

    >>> largest(torch.tensor([3.0, -4.0, 1.0, 0.5]), 0.5).tolist()
    [True, True, False, False]
    """
    mask = torch.zeros(len(vector), dtype=torch.bool)
    count = min(len(vector), math.floor(fraction * len(vector) + 1e-9))
    if count:
        mask[torch.topk(vector.abs(), count).indices] = True
    return mask


def compensations(values: Tensor, earlier: Tensor) -> Tensor:
    """``[agents]``: by how much a value is above the mean of those of earlier rounds, or 0 (Eq. 5).

    Args:
        earlier: ``[rounds, agents]``, the values before the first round included.
    """
    return (values.double() - earlier.double().mean(0)).clamp(min=0)


def payoffs(values: Tensor, earlier: Tensor, budget: float = 1.0) -> Tensor:
    """``[agents]``: what each is paid of the budget in a round; the sum is the budget (Eq. 5 to 7).

    An agent whose value has risen is compensated after the fact; one whose value is negative pays, and is not
    compensated.

    Args:
        values: this round's; they sum to 1.
        earlier: ``[rounds, agents]`` of the rounds before.

    Raises:
        BadInput: for a budget that is negative or not finite, or values that add up to nothing.
    """
    if not math.isfinite(budget) or budget < 0:
        raise BadInput(f"budget {budget}: give a number that is not negative")
    raised = torch.where(values.double() >= 0, compensations(values, earlier), 0.0)
    earned = values.double() + raised
    total = float(earned.sum())
    if total <= SMALL:
        raise BadInput(
            f"values that add up to {total:.3g} cannot share a budget: normalise them to a sum of 1"
        )
    return budget * earned / total


# --- model-gradient fairness


def correlation(alone: Sequence[float], together: Sequence[float]) -> float:
    """Pearson's correlation of agents' accuracy on their own and federated, of those that have both.

    Returns:
        NaN where it is not defined: fewer than three agents, or no spread.
    """
    pairs = [(a, b) for a, b in zip(alone, together, strict=True) if math.isfinite(a) and math.isfinite(b)]
    x, y = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2).T
    x, y = x - x.mean(), y - y.mean()
    lengths = float(x.norm() * y.norm())
    if len(pairs) < 3 or lengths < 1e-12:
        return math.nan
    return max(-1.0, min(1.0, float(x @ y) / lengths))
