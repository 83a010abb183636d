"""Worst-case neighbours: two worlds whose uploads are as far apart as one unit moves them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from secure_fedgraph.errors import BadInput
from secure_fedgraph.privacy.protection import Bound
from secure_fedgraph.protocol.channel import Unit
from secure_fedgraph.protocol.upload import Parts, Upload

BEYOND = 10.0
"""How far worst-case values lie beyond the clip: a clip that is skipped shows."""

Uploads = Mapping[str, Upload | Parts]


@dataclass(frozen=True)
class Neighbours:
    """Two worlds that differ in one unit, as the uploads of everybody who answers.

    Args:
        target: whose unit it is.
        present, absent: client -> upload, in the one world and in the other.
        trials: independent trials in one call, where blocks of as many rows each hold a unit of their own and
            the mechanism treats all rows alike.
    """

    target: str
    present: Uploads
    absent: Uploads
    trials: int = 1


def client_rows(
    bound: Bound, norm: float, tensors: int = 4, width: int = 2, answering: int = 0
) -> Neighbours:
    """One client's upload, far beyond the clip in every tensor, against none (or, replaced, its opposite).

    Args:
        bound: on a channel of client units.
        norm: the clip.
        tensors, width: how many tensors, of how many values: several show a clip that is taken one by one.
        answering: how many clients answer; all where 0.
    """
    if bound.channel.unit is not Unit.CLIENT:
        raise BadInput(f"channel {bound.channel.name!r} has no client units")
    clients = bound.terms.clients[: answering or None]

    def filled(size: float) -> Upload:
        row = torch.tensor([size] + [0.0] * (width - 1))
        return Upload({f"layer{i}": row for i in range(tensors)})

    others = {name: filled(0.1 * norm / math.sqrt(tensors)) for name in clients[1:]}
    far = -BEYOND * norm if bound.terms.relation == "replace" else 0.0
    return Neighbours(
        clients[0], {clients[0]: filled(BEYOND * norm), **others}, {clients[0]: filled(far), **others}
    )


def pooled_parts(bound: Bound, trials: int = 100, width: int = 2, answering: int = 0) -> Neighbours:
    """One unit in thrice the rows it may be in, far beyond the norm in each, against none (or its opposite).

    Every block of rows has a unit of its own, which is a trial.

    Args:
        bound: on a channel of sums over units.
        trials: units of the target.
        width: values in a row.
        answering: how many clients answer; all where 0.
    """
    touches = bound.channel.touches
    if touches is None:
        raise BadInput(f"channel {bound.channel.name!r} declares no sums over units")
    clients = bound.terms.clients[: answering or None]
    places = torch.block_diag(*torch.ones(trials, 1, 3 * touches.rows)).bool()

    def parts(size: float) -> Parts:
        return Parts({"rows": torch.tensor([[size] + [0.0] * (width - 1)]).repeat(trials, 1)}, places)

    others = {name: parts(0.1 * touches.norm) for name in clients[1:]}
    far = -BEYOND * touches.norm if bound.terms.relation == "replace" else 0.0
    return Neighbours(
        clients[0],
        {clients[0]: parts(BEYOND * touches.norm), **others},
        {clients[0]: parts(far), **others},
        trials,
    )
