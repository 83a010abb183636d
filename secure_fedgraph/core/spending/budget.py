"""A privacy budget: how much may be spent, for whose data, against whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.events import DiscreteRelease, Event, SamplingError
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
        if not 0 < self.delta < 1:
            raise BadInput(f"delta {self.delta} must lie between 0 and 1; 1e-5 is usual")

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
        self._ahead: dict[frozenset[Event], float] = {}
        """Kinds of events -> how many times as many are tried next."""

    def holds(self, events: Mapping[Event, int]) -> bool:
        """Whether they are within the budget."""
        if any(_is_part(events, known) for known in self._known):
            return True
        if not self._fits(events):
            return False
        self._know(events)
        kinds = frozenset(events)
        ahead = self._ahead.get(kinds, 2.0)
        more = {one: math.ceil(times * ahead) for one, times in events.items()}
        if ahead > _LITTLE and self._fits(more):
            self._know(more)
        else:
            self._ahead[kinds] = 1 + (ahead - 1) / 2
        return True

    def _fits(self, events: Mapping[Event, int]) -> bool:
        return accounting.epsilon(events, self._delta).epsilon <= self._epsilon

    def _know(self, events: Mapping[Event, int]) -> None:
        rest = [known for known in self._known if not _is_part(known, events)]
        self._known = [*rest, dict(events)][-_REMEMBERED:]


_LITTLE = 1.01
"""Trying fewer events ahead than this is not worth a computation."""
_REMEMBERED = 16


def _is_part(events: Mapping[Event, int], of: Mapping[Event, int]) -> bool:
    """Whether events cost at most what others do: no more of each, on no wider vectors, with no more error.

    Noise is planned for the widest vector that a channel may carry, and what is charged is as wide as what is
    sent: the cost grows with the width and with the sampler's distance.
    """
    return _error(events) <= _error(of) and all(
        times <= sum(n for other, n in of.items() if _covers(other, widest))
        for widest, times in _by_noise(events)
    )


def _error(events: Mapping[Event, int]) -> float:
    return math.fsum(n * one.total_variation for one, n in events.items() if isinstance(one, SamplingError))


def _by_noise(events: Mapping[Event, int]) -> Iterator[tuple[Event, int]]:
    """Releases with how often each; those of one noise as the widest of them."""
    found: dict[DiscreteRelease, tuple[int, float, int]] = {}
    for one, times in events.items():
        if isinstance(one, DiscreteRelease):
            key = replace(one, width=1, total_variation=0.0)
            width, error, before = found.get(key, (1, 0.0, 0))
            found[key] = max(width, one.width), max(error, one.total_variation), before + times
        elif not isinstance(one, SamplingError):
            yield one, times
    for key, (width, error, times) in found.items():
        yield replace(key, width=width, total_variation=error), times


def _covers(one: Event, other: Event) -> bool:
    """Whether a release costs at least as much as another of the same noise."""
    if not (isinstance(one, DiscreteRelease) and isinstance(other, DiscreteRelease)):
        return one == other
    as_wide = replace(other, width=one.width, total_variation=one.total_variation)
    return as_wide == one and one.width >= other.width and one.total_variation >= other.total_variation


@lru_cache(maxsize=64)
def _within(epsilon: float, delta: float) -> _Within:
    return _Within(epsilon, delta)


@lru_cache(maxsize=64)
def _filter(epsilon: float, delta: float) -> Filter:
    return Filter(epsilon, delta)
