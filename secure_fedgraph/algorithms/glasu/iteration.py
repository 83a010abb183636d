"""One GLASU iteration as the server keeps it: what it asks with, and which clients are in all its sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

Value = int | tuple[str, ...] | Tensor


@dataclass
class Iteration:
    """What the server keeps from one request of an iteration to the next.

    Args:
        cohort: all clients, in the order of their blocks.
        step: the iteration's number within the round.
        seed: of the batch, and of public index sets.
    """

    cohort: tuple[str, ...]
    step: int
    seed: int
    opened: dict[str, Value] = field(default_factory=dict)
    """What the last exchange opened, which the next request carries: a union, an aggregate or a gradient."""
    summands: dict[int, int] = field(default_factory=dict)
    """Segment -> by how many clients the sum of its rows was divided."""
    _missing: set[str] = field(default_factory=set)

    def request(self, segment: int | None = None) -> dict[str, Value]:
        """What a client is asked with, for one segment or for the whole iteration."""
        task: dict[str, Value] = {"step": self.step, "seed": self.seed, "parties": self.cohort}
        return {**task, **self.opened, **({} if segment is None else {"segment": segment})}

    def keep(self, contributors: Iterable[str]) -> None:
        """Notes who was in a sum: whoever is missing in one takes no step."""
        self._missing |= {*self.cohort} - {*contributors}

    @property
    def present(self) -> tuple[str, ...]:
        """The clients that were in all sums, in the cohort's order."""
        return tuple(name for name in self.cohort if name not in self._missing)
