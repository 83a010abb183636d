"""A privacy budget: how much may be spent, for whose data, against whom."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from secure_fedgraph.errors import BadInput, BudgetExhausted, check_number, check_whole, wrong_type
from secure_fedgraph.privacy.accounting import epsilon as accounting
from secure_fedgraph.privacy.accounting.epsilon import Event
from secure_fedgraph.privacy.accounting.filter import Filter
from secure_fedgraph.protocol.guarantee import Reader, Unit


@dataclass(frozen=True)
class Budget:
    """What no client's charges may exceed.

    Args:
        epsilon, delta: the guarantee.
        unit: whose data it is about: ``client``, ``graph``, ``node``, ``edge``, ``label`` or ``feature``.
        against: the reader that it holds against: ``server``, ``peers`` or ``outsider``.
        holders: how many clients may hold the same unit.
        adaptive: whether it is shared by runs of which the later ones are planned by who saw the earlier:
            a filter then says what fits, instead of the sum of a plan that was fixed first.

    Raises:
        BadInput: for figures that are none.
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
        """What these come to; infinite for None, where something was touched without noise."""
        return math.inf if events is None else accounting.epsilon(events, self.delta).epsilon

    def holds(self, events: Mapping[Event, int] | None) -> bool:
        """Whether all of these are within it."""
        if events is None:
            return False
        if not self.adaptive:
            return self.epsilon_of(events) <= self.epsilon
        return not events or _filter(self.epsilon, self.delta).allows(events)

    def check(self, events: Mapping[Event, int] | None, client: str, channel: str) -> None:
        """That a client's spending, the next message of a channel with it, is within.

        Raises:
            BudgetExhausted: where it is not.
        """
        if not self.holds(events):
            epsilon = self.epsilon_of(events)
            what = "no noise protects it" if math.isinf(epsilon) else f"it comes to {epsilon:.4g}"
            if epsilon <= self.epsilon:
                what += ", and more where later runs are planned by who saw the earlier ones"
            raise BudgetExhausted(
                f"channel {channel!r}: {client}'s next message would exceed the budget of epsilon "
                f"{self.epsilon:g} at delta {self.delta:g} for one {self.unit} against the {self.against} "
                f"({what}): it is not sent; give a larger budget, more noise, or fewer rounds"
            )


class DeltaWarning(UserWarning):
    """A delta that publishing one unit of all as it is would keep to."""


def warn_of_delta(delta: float, sizes: Mapping[str, int]) -> None:
    """Warns where delta is 1/n or more.

    Args:
        delta: the failure probability.
        sizes: unit -> how many of it there are, which is public.
    """
    for unit, count in sizes.items():
        if count and delta >= 1 / count:
            warnings.warn(
                f"delta {delta:g} is 1/n or more of {count} {unit}s: whoever publishes one {unit} of all as "
                f"it is keeps to it; set --delta well below {1 / count:.1g}",
                DeltaWarning,
                stacklevel=2,
            )
            return  # of smaller units there are more


@lru_cache(maxsize=64)
def _filter(epsilon: float, delta: float) -> Filter:
    return Filter(epsilon, delta)
