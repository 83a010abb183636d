"""What a client refuses of the models that a server hands out, by public facts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from secure_fedgraph.core.errors import BadInput, HostileMessage

State = Mapping[str, torch.Tensor]
LAST_MODEL = "last model of "
"""Before the name of its first weight: the memory entry with the model that was given last, and the round."""
ROUNDING = 1e-5
"""What two machines' first weights may differ by, as a share of their length."""
FEW_INPUTS = 32
"""Below so many inputs nothing can be said about how a unit's weights spread over them."""
MOST_OF, ON_FEW = 0.9, 0.02
"""A unit is narrow where this share of its squared length lies on this share of its inputs."""
SAME_DIRECTION = 0.999
"""The cosine above which two units have the same direction."""
AT_ONCE = 2**24
"""Cosines that are held at a time."""


@dataclass(frozen=True)
class BroadcastLimits:
    """What a client insists on when it is given a model, before it computes or charges anything.

    Guarantees:
        - both checks look at what the server sent, the public start of the run and the client's memory of
          earlier models, never at the client's data. A refusal costs nothing and says nothing about data.
    Needs:
        - an algorithm that gives clients its model on a channel that says so (``Channel.gives_model``), and
          the same model to be scored in band. What it gives on other channels is not checked. A mean of
          several rounds' models that is scored in band (``fedsgd``) lags by several steps, so it
          needs a wider ``change`` than training does.

    A server that knows the limits still plants weights, in steps that fit, and needs more rounds for it
    (attack A5 does so, ``docs/attacks/weights.md``). Only noise bounds what one node shows.

    Args:
        change: how far the model may move in a round, in L2 norm over all weights, however many requests a
            round has. The first model has to be the public start; a client that missed rounds allows as many
            steps.
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


@dataclass(frozen=True)
class Beginning:
    """How a channel that gives the model begins in an honest run, which is public.

    Args:
        model: that it gives first.
        round: in which it does.
    """

    model: State
    round: int = 1


class BroadcastCheck:
    """A client's check of the models that it is given, with its memory of the last one.

    Args:
        limits: its policy's.
        beginning_of: channel -> how it begins; None for one that gives no model.
    """

    def __init__(self, limits: BroadcastLimits, beginning_of: Callable[[str], Beginning | None]) -> None:
        self.limits = limits
        self._beginning_of = beginning_of
        self._beginnings: dict[str, Beginning | None] = {}

    def check(self, channel: str, round: int, values: Mapping[str, Any], memory: dict[str, Any]) -> None:
        """Holds a request's model to the limits.

        Args:
            channel: that gives it.
            round: of the request.
            values: what it gives, already of the declared form.
            memory: the client's; holds the first model of the last round, and what that was measured from.

        Raises:
            HostileMessage: for a model that is too far from the last one, or has too many planted units.
        """
        beginning = self._beginning(channel)
        if beginning is None:
            return
        model = {name: torch.as_tensor(value) for name, value in values.items()}
        self._check_units(channel, model)
        if self.limits.change is not None:
            self._check_change(channel, round, model, beginning, memory)

    def check_scored(
        self, channel: str, round: int, values: Mapping[str, Any], memory: Mapping[str, Any]
    ) -> None:
        """Holds a model that is handed out to be scored to the limits: the round's, one step on.

        Nothing is remembered of it: the next round's model is measured from this round's.

        Args:
            channel: of scores.
            round: whose model is scored.
            values: the model; empty where owners score their own.
            memory: the client's.

        Raises:
            HostileMessage: as :meth:`check`.
        """
        beginning = self._beginning(channel)
        if beginning is None or not values.keys() <= beginning.model.keys():
            return
        model = {name: torch.as_tensor(value) for name, value in values.items()}
        self._check_units(channel, model)
        if self.limits.change is None:
            return
        kept = memory.get(LAST_MODEL + min(beginning.model))
        since, base = (beginning.round, {}) if kept is None else (int(kept["round"]), kept["model"])
        steps = max(round - since, 0) + 1  # of the round itself, which is behind it
        self._hold(channel, round, model, {**beginning.model, **base}, steps, since if base else None)

    def _beginning(self, channel: str) -> Beginning | None:
        if channel not in self._beginnings:
            self._beginnings[channel] = self._beginning_of(channel)
        return self._beginnings[channel]

    def _check_units(self, channel: str, model: State) -> None:
        if self.limits.units is None:
            return
        name, share = most_planted(model)
        if share > self.limits.units:
            raise HostileMessage(
                f"channel {channel!r} gives a model in which {share:.0%} of the units of {name[:60]!r} "
                f"look planted, and broadcast.units allows {self.limits.units:.0%}"
            )

    def _hold(
        self, channel: str, round: int, model: State, base: State, steps: int, since: int | None
    ) -> None:
        """Refuses a model that is further from ``base`` than so many steps.

        Args:
            since: whose round's model that is; None for the public start.
        """
        assert self.limits.change is not None
        moved = distance(model, base)
        allowed = steps * self.limits.change + ROUNDING * length(base)
        if not moved <= allowed:
            origin = "the public start" if since is None else f"round {since}'s"
            raise HostileMessage(
                f"channel {channel!r} gives a model that is {moved:.3g} from {origin} in round {round}, and "
                f"broadcast.change = {self.limits.change:g} a round allows {allowed:.3g}"
            )

    def _check_change(
        self, channel: str, round: int, model: State, beginning: Beginning, memory: dict[str, Any]
    ) -> None:
        entry = LAST_MODEL + min(model)  # channels that give one model, in turn, share what is kept of it
        kept = memory.get(entry)
        if kept is not None and int(kept["round"]) == round:  # measured as this round's first one was
            since, base = int(kept["since"]), kept["base"]
        elif kept is not None:
            since, base = int(kept["round"]), kept["model"]
        else:
            since, base = beginning.round, {}
        steps = max(round - since, 0)
        self._hold(channel, round, model, {**beginning.model, **base}, steps, since if base else None)
        if kept is None or round > int(kept["round"]):
            copied = {name: value.clone() for name, value in model.items()}
            memory[entry] = {"round": round, "model": copied, "since": since, "base": dict(base)}


def length(model: State) -> float:
    """The L2 norm over all weights."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in model.values()))


def distance(model: State, other: State) -> float:
    """The L2 norm of the difference of two models of one form."""
    return length({name: value.double() - other[name].double() for name, value in model.items()})


def most_planted(model: State) -> tuple[str, float]:
    """The matrix with the largest share of planted rows, and that share; weights of convolutions as rows."""
    shares = {
        name: planted_share(value.reshape(len(value), -1))
        for name, value in model.items()
        if value.dim() > 1 and value.is_floating_point() and len(value) > 1 and value.numel()
    }
    return max(shares.items(), key=lambda one: one[1], default=("", 0.0))


def planted_share(weight: torch.Tensor) -> float:
    """The share of a matrix's rows that training does not make: zero, narrow, or in another's direction.

    Of few inputs nothing but zeros is counted: their rows are alike by chance.

    Args:
        weight: ``[units, inputs]``, finite.

    >>> planted_share(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.5, 0.5], [1.0, 1.0]]))
    0.25
    """
    largest = weight.double().abs().amax(dim=1)
    odd = largest == 0
    inputs = weight.shape[1]
    if inputs >= FEW_INPUTS:
        scaled = weight.double() / largest.clamp(min=torch.finfo(torch.float64).tiny)[:, None]
        unit = (scaled / scaled.norm(dim=1).clamp(min=1)[:, None]).float()
        odd |= _alike(unit)
        spread = unit.square().topk(max(round(ON_FEW * inputs), 1), dim=1).values
        odd |= spread.sum(1) >= MOST_OF
    return float(odd.double().mean())


def _alike(unit: torch.Tensor) -> torch.Tensor:
    """Which rows of length 1 have the direction of another row; a part of the rows at a time."""
    rows = len(unit)
    part = max(AT_ONCE // rows, 1)
    found = []
    for first in range(0, rows, part):
        cosines = unit[first : first + part] @ unit.T
        own = torch.arange(len(cosines))
        cosines[own, own + first] = 0
        found.append(cosines.amax(1) > SAME_DIRECTION)
    return torch.cat(found)
