"""What a client refuses of the models that a server hands out, by public facts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from secure_fedgraph.errors import BadInput, HostileMessage

State = Mapping[str, torch.Tensor]
LAST_MODEL = "last model of "
"""Before a channel's name: the memory entry with the model that it gave last, and the round."""
ROUNDING = 1e-5
"""What two machines' first weights may differ by, as a share of their length."""
FEW_INPUTS = 32
"""Below so many inputs nothing can be said about how a unit's weights spread over them."""
MOST_OF, ON_FEW = 0.9, 0.02
"""A unit is narrow where this share of its squared length lies on this share of its inputs."""
SAME_DIRECTION = 0.999
"""The cosine above which two units have the same direction."""


@dataclass(frozen=True)
class BroadcastLimits:
    """What a client insists on when it is given a model, before it computes or charges anything.

    Guarantees:
        - both checks look at what the server sent, the public start of the run and the client's memory of
          earlier models, never at the client's data. A refusal costs nothing and says nothing about data.
    Needs:
        - an algorithm that gives clients its whole model on some channel.

    A server that knows the limits still plants weights, in steps that fit, and needs more rounds for it
    (attack A5 does so, ``docs/attacks/weights.md``). Only noise bounds what one node shows.

    Args:
        change: how far the model may move in a round, in L2 norm over all weights. Round 1's model has to be
            the public start; a client that missed rounds allows as many steps.
        units: the largest share of a matrix's rows that may be planted ones: zero, with nine tenths of their
            squared length on a fiftieth of the inputs, or in the direction of another row.
        seed: of the run's first weights; :func:`~secure_fedgraph.running.preparation.prepare` sets it.

    Raises:
        BadInput: for limits out of range, or none at all.
    """

    change: float | None = None
    units: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.change is None and self.units is None:
            raise BadInput("broadcast: no limit is given; set broadcast.change, broadcast.units or both")
        for key in ("change", "units"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise BadInput(f"broadcast.{key} = {value!r}: give a number")
        if self.change is not None and not (math.isfinite(self.change) and self.change > 0):
            raise BadInput(f"broadcast.change = {self.change}: give a positive L2 norm")
        if self.units is not None and not 0 <= self.units < 1:
            raise BadInput(f"broadcast.units = {self.units}: give a share of a matrix's rows, below 1")


class BroadcastCheck:
    """A client's check of the models that it is given, with its memory of the last one.

    Args:
        limits: its policy's.
        start_of: channel -> the model that it gives first in an honest run, which is public; None for one
            that gives something else.
    """

    def __init__(self, limits: BroadcastLimits, start_of: Callable[[str], State | None]) -> None:
        self.limits = limits
        self._start_of = start_of
        self._starts: dict[str, State | None] = {}

    def check(self, channel: str, round: int, values: Mapping[str, Any], memory: dict[str, Any]) -> None:
        """Holds a request's model to the limits.

        Args:
            channel: that gives it.
            round: of the request.
            values: what it gives, already of the declared form.
            memory: the client's; holds the first model of each round until the next round's.

        Raises:
            HostileMessage: for a model that is too far from the last one, or has too many planted units.
        """
        if channel not in self._starts:
            self._starts[channel] = self._start_of(channel)
        start = self._starts[channel]
        if start is None:
            return
        model = {name: torch.as_tensor(value) for name, value in values.items()}
        if self.limits.units is not None:
            self._check_units(channel, model)
        if self.limits.change is not None:
            self._check_change(channel, round, model, start, memory)

    def _check_units(self, channel: str, model: State) -> None:
        for name, value in model.items():
            if value.dim() == 2 and value.is_floating_point() and len(value) > 1:
                share = planted_share(value)
                if share > (self.limits.units or 0):
                    raise HostileMessage(
                        f"channel {channel!r} gives a model in which {share:.0%} of the units of "
                        f"{name[:60]!r} look planted, and broadcast.units allows {self.limits.units:.0%}"
                    )

    def _check_change(
        self, channel: str, round: int, model: State, start: State, memory: dict[str, Any]
    ) -> None:
        assert self.limits.change is not None
        entry = LAST_MODEL + channel
        kept = memory.get(entry)
        since, base = (1, start) if kept is None else (int(kept["round"]), kept["model"])
        # one round is one step, however often its requests come: all are measured from its first model
        steps = max(round - since, 0 if kept is None else 1)
        moved, allowed = distance(model, base), steps * self.limits.change + ROUNDING * length(start)
        if not moved <= allowed:
            origin = "the public start" if kept is None else f"round {since}'s"
            raise HostileMessage(
                f"channel {channel!r} gives a model that is {moved:.3g} from {origin} in round {round}, and "
                f"broadcast.change = {self.limits.change:g} a round allows {allowed:.3g}"
            )
        if kept is None or round > since:
            memory[entry] = {"round": round, "model": {name: value.clone() for name, value in model.items()}}


def length(model: State) -> float:
    """The L2 norm over all weights."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in model.values()))


def distance(model: State, other: State) -> float:
    """The L2 norm of the difference of two models of one form."""
    return length({name: value.double() - other[name].double() for name, value in model.items()})


def planted_share(weight: torch.Tensor) -> float:
    """The share of a matrix's rows that training does not make: zero, narrow, or in another's direction.

    Args:
        weight: ``[units, inputs]``.

    >>> planted_share(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.5, 0.5], [1.0, 1.0]]))
    0.75
    """
    lengths = weight.norm(dim=1)
    odd = lengths == 0
    unit = weight / lengths.clamp(min=torch.finfo(weight.dtype).tiny)[:, None]
    alike = (unit @ unit.T).abs()
    alike.fill_diagonal_(0)
    odd |= alike.amax(1) > SAME_DIRECTION
    inputs = weight.shape[1]
    if inputs >= FEW_INPUTS:
        largest = unit.square().topk(max(round(ON_FEW * inputs), 1), dim=1).values
        odd |= largest.sum(1) >= MOST_OF
    return float(odd.double().mean())
