"""Shapley values of small games, exactly, and of larger ones by sampled orders."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from secure_fedgraph.core.errors import BadInput

MOST = 16
"""Players for which all coalitions are looked at: 65,536 of them."""

Utility = Callable[[tuple[int, ...]], float]
"""The players of a coalition, ascending -> its utility."""


def exact(utility: Utility, players: int) -> Tensor:
    """``[players]``: the exact values, from every coalition once (Eq. 3).

    Raises:
        BadInput: for no player, or more than :data:`MOST`.

    >>> exact(lambda who: float(0 in who) + 2 * float(1 in who), 2)
    tensor([1., 2.], dtype=torch.float64)
    """
    return exact_of_all(
        lambda members: torch.tensor(
            [utility(tuple(row.nonzero().flatten().tolist())) for row in members], dtype=torch.float64
        ),
        players,
    )


def exact_of_all(utility: Callable[[Tensor], Tensor], players: int) -> Tensor:
    """The same for a utility that takes all coalitions at once.

    Args:
        utility: ``[2^players, players]`` of zeros and ones -> ``[2^players]``.
    """
    if not 1 <= players <= MOST:
        raise BadInput(f"exact Shapley values of {players} players: from 1 to {MOST}; sample orders for more")
    numbers = torch.arange(2**players)
    members = (numbers[:, None] >> torch.arange(players) & 1).double()
    worth = utility(members).double()
    size = members.sum(1)
    # |S|! (n - |S| - 1)! / n!, in logarithms
    log_weight = (
        torch.lgamma(size + 1)
        + torch.lgamma((players - size).clamp(min=1))
        - torch.lgamma(torch.tensor(players + 1.0, dtype=torch.float64))
    )
    weight = log_weight.exp()
    values = []
    for player in range(players):
        without = numbers[(numbers >> player & 1) == 0]
        values.append((weight[without] * (worth[without | (1 << player)] - worth[without])).sum())
    return torch.stack(values)


def sampled(utility: Utility, players: int, orders: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The mean marginal contribution over random orders, each with its reverse.

    Values always add up to ``utility(all) - utility(nobody)``.

    Args:
        orders: pairs of orders.

    Returns:
        ``[players]`` values, and their standard errors (NaN for a single pair).

    Raises:
        BadInput: for no player or no order.
    """
    if players < 1 or orders < 1:
        raise BadInput(f"sampled Shapley values of {players} players over {orders} orders: give 1 or more")
    known: dict[tuple[int, ...], float] = {}

    def of(who: tuple[int, ...]) -> float:
        if who not in known:
            known[who] = utility(who)
        return known[who]

    rows = []
    for _ in range(orders):
        order = torch.randperm(players, generator=generator).tolist()
        both = torch.zeros(players, dtype=torch.float64)
        for one in (order, order[::-1]):
            before = of(())
            for place, player in enumerate(one):
                after = of(tuple(sorted(one[: place + 1])))
                both[player] += (after - before) / 2
                before = after
        rows.append(both)
    pairs = torch.stack(rows)
    error = pairs.std(0) / orders**0.5 if orders > 1 else torch.full((players,), float("nan"))
    return pairs.mean(0), error.double()
