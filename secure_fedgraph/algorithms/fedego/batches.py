"""Which of a client's ego-graphs FedEgo mashes together: in secret, or as audits run it beside that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from secure_fedgraph.algorithms.fedego.settings import FedEgoSettings
from secure_fedgraph.graph.sample.ego_graphs import level_sizes
from secure_fedgraph.seams import ClientContext

ORDER = "mash batches"
"""The purpose of the seeded order, under ``batching="seeded"``."""


def centres(client: ClientContext, settings: FedEgoSettings) -> Tensor:
    """``[mashes, n]`` nodes of a client; -1 where a batch is short."""
    pool = client.graph.train_mask.nonzero().flatten()
    places = numbered(len(pool), settings, orders(settings, client.secret_order, client.generator))
    return torch.where(places < 0, -1, pool[places.clamp(min=0)])


def orders(
    settings: FedEgoSettings,
    secret_order: Callable[[int], Tensor],
    generator: Callable[[str], torch.Generator],
) -> Callable[[int], Tensor]:
    """What draws the order of a pool of so many nodes.

    Args:
        secret_order: the operating system's.
        generator: a seeded one of this client and round, by purpose.
    """
    if settings.batching == "secret":
        return secret_order
    if settings.batching == "released":
        return torch.arange
    drawn = generator(ORDER)
    return lambda size: torch.randperm(size, generator=drawn)


def numbered(size: int, settings: FedEgoSettings, order: Callable[[int], Tensor]) -> Tensor:
    """``[mashes, n]`` numbers of a pool of ``size``; -1 where a batch is short.

    Whole batches of an order, which is drawn again when it runs out and more are wanted. What is left over
    of a pool is a batch of its own where ``batching`` is not secret, and each client's mashes are read.
    """
    n = settings.batch
    whole, across = size // n, settings.mash == "across"
    wanted = settings.mashes if across else whole
    if settings.batching == "secret" or across:
        passes = [order(size)[: whole * n].view(whole, n) for _ in range(-(-wanted // whole))]
        return torch.cat(passes)[:wanted]
    padded = torch.full((-(-size // n) * n,), -1)
    padded[:size] = order(size)
    return padded.view(-1, n)


def shifted(rows: Tensor, fanout: Sequence[int]) -> Tensor:
    """Slots by running index over a batch, as released: a node without neighbours shifts all later ones'.

    Args:
        rows: ``[batches, n, positions]`` node indices; -1 in empty slots.

    >>> shifted(torch.tensor([[[0, -1], [1, 5]]]), (1,)).tolist()
    [[[0, 5], [1, -1]]]
    """
    parts = []
    for part in rows.split([size for size in level_sizes(fanout) if size <= rows.shape[2]], dim=2):
        flat = part.reshape(len(rows), -1)
        filled_first = (flat < 0).to(torch.int8).argsort(dim=1, stable=True)
        parts.append(flat.gather(1, filled_first).view(part.shape))
    return torch.cat(parts, dim=2)
