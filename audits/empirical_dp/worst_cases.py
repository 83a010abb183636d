"""Worst-case neighbours: two worlds whose uploads are as far apart as one unit moves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from secure_fedgraph.core.channel import UnitContributionMoments, UnitContributionSampled
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.upload import (
    AnyUpload,
    ContributionMoments,
    ContributionRows,
    ContributionSample,
    Upload,
)
from secure_fedgraph.privacy.dp_sgd import PrivateSteps

BEYOND = 10.0
"""How far worst-case values lie beyond the clip: a clip that is skipped shows."""

Uploads = Mapping[str, AnyUpload]


def in_tensors(rows: torch.Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Rows of values ``[rows, values]`` as tensors of these shapes by name, one a row in each.

    >>> {k: tuple(v.shape) for k, v in in_tensors(torch.zeros(3, 7), {"w": (2, 3), "b": (1,)}).items()}
    {'w': (3, 2, 3), 'b': (3, 1)}
    """
    parts = rows.split([math.prod(shape) for shape in shapes.values()], dim=1)
    return {
        name: part.reshape(len(rows), *shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


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


def _one_unit(
    bound: Bound,
    answering: int,
    unit: Callable[[float], AnyUpload],
    sizes: tuple[float, float, float],
    trials: int = 1,
) -> Neighbours:
    """Worlds that differ in the first client's upload.

    Args:
        unit: an upload by its size.
        sizes: of that upload in the one world and in the other, and of everybody else's.
    """
    first, *others = bound.bind_context.clients[: answering or None]
    present, absent, beside = sizes
    around = {name: unit(beside) for name in others}
    return Neighbours(first, {first: unit(present), **around}, {first: unit(absent), **around}, trials)


def client_rows(
    bound: Bound, norm: float, tensors: int = 4, width: int = 2, answering: int = 0
) -> Neighbours:
    """One client's upload, far beyond the clip in every tensor, against none (or, replaced, its opposite).

    Args:
        bound: on a channel of client units.
        norm: the clip.
        tensors, width: how many tensors, of how many values: several show a clip of each tensor by itself.
        answering: how many clients answer; all where 0.
    """
    if bound.channel.unit is not Unit.CLIENT:
        raise BadInput(f"channel {bound.channel.name!r} has no client units")

    def filled(size: float) -> Upload:
        row = torch.tensor([size] + [0.0] * (width - 1))
        return Upload({f"layer{i}": row for i in range(tensors)})

    far = -BEYOND * norm if bound.bind_context.relation == "replace" else 0.0
    return _one_unit(bound, answering, filled, (BEYOND * norm, far, 0.1 * norm / math.sqrt(tensors)))


def pooled_parts(bound: Bound, trials: int = 100, width: int = 2, answering: int = 0) -> Neighbours:
    """One unit in thrice the rows it may be in, far beyond the norm in each, against none.

    Where a unit is replaced, or reverses another's part, the other world has the opposite.

    Every block of rows has a unit of its own, which is a trial.

    Args:
        bound: on a channel of sums over units.
        trials: units of the target.
        width: values in a row.
        answering: how many clients answer; all where 0.
    """
    contribution = bound.channel.unit_contribution
    if contribution is None:
        raise BadInput(f"channel {bound.channel.name!r} declares no sums over units")
    places = torch.block_diag(*torch.ones(trials, 1, 3 * contribution.rows)).bool()

    def parts(size: float) -> ContributionRows:
        return ContributionRows(
            {"rows": torch.tensor([[size] + [0.0] * (width - 1)]).repeat(trials, 1)}, places
        )

    opposite = bound.bind_context.relation == "replace"
    far = -BEYOND * contribution.norm if opposite else 0.0
    return _one_unit(
        bound, answering, parts, (BEYOND * contribution.norm, far, 0.1 * contribution.norm), trials
    )


def long_record(bound: Bound, width: int = 4, targets: int = 2, answering: int = 0) -> Neighbours:
    """One record far beyond its length, along no axis, with a target far beyond its own, against none.

    Along no axis most of its second moments lie off the diagonal, where their weight is. Another record
    beside it shows what depends on the others. Where the unit is replaced, the other world has the opposite
    target, and with second moments a record at a right angle (their moments are then sqrt(2) apart, and 2 is
    charged).

    Args:
        bound: on a channel of moments.
        width, targets: values of a record, at least 2 and even, and of a target.
        answering: how many clients answer; all where 0.
    """
    contribution = bound.channel.unit_contribution
    if not isinstance(contribution, UnitContributionMoments):
        raise BadInput(f"channel {bound.channel.name!r} declares no moments")
    clients = bound.bind_context.clients[: answering or None]
    beside, turned = torch.eye(width)[0], torch.tensor([1.0, -1.0]).repeat(width // 2)

    def moments(z: torch.Tensor, side: float) -> ContributionMoments:
        target = torch.zeros(targets)
        target[0] = side * BEYOND * contribution.targets
        rows = torch.stack([BEYOND * z, 0.1 * beside])
        return ContributionMoments(rows, torch.stack([target, torch.zeros(targets)]))

    opposite = bound.bind_context.relation == "replace"
    other = turned if contribution.second else torch.ones(width)
    none = moments(other, -1.0) if opposite else moments(torch.zeros(width), 0.0)
    others = {name: moments(0.01 * beside, 0.01) for name in clients[1:]}
    present = moments(torch.ones(width), 1.0)
    return Neighbours(clients[0], {clients[0]: present, **others}, {clients[0]: none, **others})


def sums_apart(bound: Bound, width: int = 4, answering: int = 0) -> Neighbours:
    """The worst case that is known for a channel of sums over units, by what the channel declares.

    Args:
        bound: on such a channel.
        width: values of a unit's part, even.
        answering: how many clients answer; all where 0.
    """
    contribution = bound.channel.unit_contribution
    if isinstance(contribution, UnitContributionMoments):
        return long_record(bound, width, answering=answering)
    if isinstance(contribution, UnitContributionSampled):
        return sampled_part(bound, width, answering=answering)
    return pooled_parts(bound, width=width, answering=answering)


def sampled_part(bound: Bound, width: int = 4, answering: int = 0) -> Neighbours:
    """One unit that coins took, its part far beyond the norm in two tensors, against none (or its opposite).

    Coins are no part of it: in both worlds they took the unit. So what it bounds is the epsilon of an upload
    that every unit is part of (:func:`surely_taken`).

    Args:
        bound: on a channel of sampled units.
        width: values in a part, at least 2.
        answering: how many clients answer; all where 0.
    """
    contribution = bound.channel.unit_contribution
    if not isinstance(contribution, UnitContributionSampled):
        raise BadInput(f"channel {bound.channel.name!r} samples no units")

    def parts(size: float) -> ContributionSample:
        row = torch.zeros(2, width - 1)
        row[0, 0], row[1, -1] = size, 0.1 * contribution.norm
        last = torch.tensor([[size], [0.0]])
        return ContributionSample({"rows": row, "last": last}, torch.tensor([3, 8]))

    far = -BEYOND * contribution.norm if bound.bind_context.relation == "replace" else 0.0
    return _one_unit(bound, answering, parts, (BEYOND * contribution.norm, far, 0.1 * contribution.norm))


def surely_taken(bound: Bound) -> Bound:
    """The same protection, as it is charged where each unit is part of each upload."""
    stages = tuple(
        replace(stage, rate=1.0) if isinstance(stage, Gaussian) else stage for stage in bound.stages
    )
    return replace(bound, stages=stages)


Gradients = Callable[[torch.Tensor], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Records:
    """Two worlds of a training's records, in blocks that do not touch each other.

    A block is a trial: it has ``touched`` records of one unit, whose gradients have coordinates of their own.
    Coins, clips and noise are independent from block to block, so one step is as many trials as it has
    blocks.

    Args:
        blocks: how many.
        touched: records that a unit is in.
        tensors: how many parameters a gradient is spread over: several show a clip of each by itself.
        far: the length of a gradient.
        vanishing: whether the touched records' gradients are zero in the other world, or else opposite.
    """

    blocks: int
    touched: int
    tensors: int
    far: float
    vanishing: bool

    @property
    def number(self) -> int:
        """Records."""
        return self.blocks * self.touched

    @property
    def names(self) -> list[str]:
        """The parameters, each of ``blocks`` values."""
        return [f"layer{i}" for i in range(self.tensors)]

    def gradients(self, present: bool) -> Gradients:
        """Chosen records to their gradients, in the one world or the other."""
        size = self.far / math.sqrt(self.tensors) * (1.0 if present else 0.0 if self.vanishing else -1.0)

        def of(chosen: torch.Tensor) -> dict[str, torch.Tensor]:
            values = torch.zeros(len(chosen), self.blocks)
            values[torch.arange(len(chosen)), chosen // self.touched] = size
            return dict.fromkeys(self.names, values)

        return of


def unit_in_records(
    private_steps: PrivateSteps, occurrences: int = 1, blocks: int = 500, tensors: int = 2
) -> Records:
    """One unit whose gradients all point one way, far beyond the clip, against the other way (or zero).

    Args:
        private_steps: of graphs, a record is zeroed out; of nodes, a touched record may change to any other,
            unless it is the only one: that is the node's own, and goes with it.
        occurrences: records of a unit.
        blocks, tensors: as :class:`Records` says.
    """
    vanishing = private_steps.unit == "graph" or occurrences == 1
    return Records(blocks, occurrences, tensors, BEYOND * private_steps.clip, vanishing=vanishing)
