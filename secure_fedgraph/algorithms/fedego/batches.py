"""Which of a client's training nodes are mashed together: whole batches only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from secure_fedgraph.algorithms.fedego.settings import FedEgoSettings


def numbered(size: int, settings: FedEgoSettings, order: Callable[[int], Tensor]) -> Tensor:
    """``[mashes, n]`` numbers of a pool of ``size`` training nodes.

    What is left over of the pool is not mashed. Under ``mash="across"`` everybody makes ``mashes`` of them:
    an order is drawn again when it runs out.

    Args:
        order: draws an order of so many nodes.
    """
    n = settings.batch
    whole = size // n
    wanted = settings.mashes if settings.mash == "across" else whole
    passes = [order(size)[: whole * n].view(whole, n) for _ in range(-(-wanted // whole))]
    return torch.cat(passes)[:wanted]
