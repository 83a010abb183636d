"""A privacy budget: how much may be spent, for whose data, against whom."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.accounting.filter import Filter
from secure_fedgraph.core.errors import BadInput, BudgetExhausted, check_number, check_whole, wrong_type
from secure_fedgraph.core.guarantee import Reader, Unit


@dataclass(frozen=True)
class Budget:
    """What no client's charges may exceed.

    Args:
        epsilon, delta: the guarantee.
        unit: whose data it is about: ``client``, ``graph``, ``node``, ``edge``, ``label`` or ``feature``.
        against: the reader that it holds against: ``server``, ``peers`` or ``outsider``.
        holders: how many clients may hold the same unit.
        adaptive: whether runs share it of which later ones are planned from what earlier ones showed: a
            filter then decides what fits, instead of the sum of a plan that was fixed first.

    Raises:
        BadInput: for figures out of range.
    """

    epsilon: float
    delta: float = 1e-5
    unit: str = Unit.CLIENT
    against: str = Reader.SERVER
    holders: int = 1
    adaptive: bool = False

    def __post_init__(self) -> None:
        for key in ("epsilon", "delta"):
            check_number(key, getattr(self, key))
        check_whole("holders", self.holders, 1)
        for key, known in (("unit", tuple(Unit)), ("against", tuple(Reader))):
            if not isinstance(getattr(self, key), str) or getattr(self, key) not in known:
                raise wrong_type(key, getattr(self, key), f"give one of {', '.join(known)}")
        if not isinstance(self.adaptive, bool):
            raise wrong_type("adaptive", self.adaptive, "give True or False")
        if not self.epsilon > 0:
            raise BadInput(f"epsilon {self.epsilon}: a budget is a positive number; 8 is usual, 1 strict")
        accounting.check_delta(self.delta)

    def epsilon_of(self, events: Mapping[Event, int] | None) -> float:
        """The epsilon of these events; infinite for None, where a unit was touched without noise."""
        return math.inf if events is None else accounting.epsilon(events, self.delta).epsilon

    def holds(self, events: Mapping[Event, int] | None) -> bool:
        """Whether all of these events are within the budget."""
        if events is None:
            return False
        if not self.adaptive:
            return _within(self.epsilon, self.delta).holds(events)
        return not events or _filter(self.epsilon, self.delta).allows(events)

    def check(
        self, events: Mapping[Event, int] | None, client: str, channel: str, earlier: bool = False
    ) -> None:
        """Checks that a client's spending, with the next message of a channel, is within the budget.

        Args:
            earlier: whether messages before it spent the budget already.

        Raises:
            BudgetExhausted: where it is not.
        """
        if not self.holds(events):
            spent = accounting.WITHOUT if events is None else accounting.epsilon(events, self.delta)
            what = spent.why_infinite("it") or f"it comes to {spent.epsilon:.4g}"
            if earlier:
                what = "spent before without noise, by an upload, an answer that failed or a torn line"
            if spent.epsilon <= self.epsilon:
                what += ", and more where later runs are planned from earlier ones"
            raise BudgetExhausted(
                f"channel {channel!r}: {client}'s next message would exceed the budget of epsilon "
                f"{self.epsilon:g} at delta {self.delta:g} for one {self.unit} against the {self.against} "
                f"({what}): it is not sent; give a larger budget, more noise, or fewer rounds"
            )


class _Within:
    """Which numbers of events are within a budget: whatever is a part of what is within it is so too.

    A run of 200 rounds asks after each of them. So an answer is found for more events than were asked about,
    and most questions are answered by an earlier one.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self._epsilon, self._delta = epsilon, delta
        self._known: list[Mapping[Event, int]] = []
        self._ahead = 2.0
        """How many times as many events are tried next."""

    def holds(self, events: Mapping[Event, int]) -> bool:
        """Whether they are within the budget."""
        if any(_is_part(events, known) for known in self._known):
            return True
        if not self._fits(events):
            return False
        most = dict(events)
        if self._ahead > _LITTLE:
            more = {one: math.ceil(times * self._ahead) for one, times in events.items()}
            if self._fits(more):
                most = more
            else:
                self._ahead = 1 + (self._ahead - 1) / 2
        self._known = [*(one for one in self._known if not _is_part(one, most)), most][-_REMEMBERED:]
        return True

    def _fits(self, events: Mapping[Event, int]) -> bool:
        return accounting.epsilon(events, self._delta).epsilon <= self._epsilon


_LITTLE = 1.01
"""Trying fewer events ahead than this is not worth a computation."""
_REMEMBERED = 16


def _is_part(events: Mapping[Event, int], of: Mapping[Event, int]) -> bool:
    """Whether there are no more of any event than among others: then they cost no more."""
    return all(times <= of.get(one, 0) for one, times in events.items())


@lru_cache(maxsize=64)
def _within(epsilon: float, delta: float) -> _Within:
    return _Within(epsilon, delta)


@lru_cache(maxsize=64)
def _filter(epsilon: float, delta: float) -> Filter:
    return Filter(epsilon, delta)
