"""Inputs that a client randomises once, in place of its own: links, labels or features."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from torch import Tensor

from secure_fedgraph.core.accounting.events import Event, PureRelease
from secure_fedgraph.core.crypto import KEY_BYTES, KeyStream
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit

if TYPE_CHECKING:
    from torch_geometric.data import Data

CHUNK = 2**22
"""Coins at a time."""


@dataclass(frozen=True)
class InputRandomizer(ABC):
    """One part of a client's graph that is randomised once: later steps cost that part nothing.

    Guarantees:
        - the client's own data are read once, and charged before;
        - coins have 64 bits from the operating system, and the probability of a lie is rounded up;
        - everything later, uploads and reads alike, uses the randomised data: post-processing.

    Args:
        epsilon: pure, of one unit in one client; clients that hold the same unit each pay it.

    Raises:
        BadInput: for an epsilon that is not positive and finite.
    """

    epsilon: float

    kind: ClassVar[str] = ""
    """Its name in settings, plans and ledgers."""
    unit: ClassVar[str] = ""
    """Whose epsilon it is."""
    place: ClassVar[str] = ""
    """The tensor of a graph that it replaces."""
    divided: ClassVar[bool] = False
    """Whether each client randomises a part of what several hold, for all of them."""
    unsupported_relations: ClassVar[Mapping[str, str]] = {}
    """Relations that it does not protect under, and why."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise BadInput(f"{self.kind}.epsilon = {self.epsilon}: give a positive number")

    def at(self, place: int, clients: int) -> Self:
        """What one of the clients does with it: every client the same, unless they divide the work.

        Args:
            place: the client's, among all clients in the order of their names, from 0.
            clients: how many there are.
        """
        return self

    @abstractmethod
    def randomize(self, graph: Data, classes: int) -> Tensor:
        """The randomised tensor, which replaces the client's own from now on.

        Args:
            graph: the client's, with what was randomised before this already in its place.
            classes: how many classes there are, which is public.
        """

    def check_relation(self, relation: str) -> None:
        """Checks that it protects under a relation.

        Raises:
            BadInput: where it does not.
        """
        if relation in self.unsupported_relations:
            raise BadInput(f"relation {relation!r}: {self.unsupported_relations[relation]}")

    def costs(self) -> dict[str, tuple[Event, ...]]:
        """The cost by unit, once: only its own unit pays, since this sends nothing."""
        return {**dict.fromkeys(Unit, ()), self.unit: (PureRelease(self.epsilon),)}

    def to_config(self) -> dict[str, Any]:
        """Its kind and settings as JSON, for another process, or to compare with a checkpoint."""
        return {"kind": self.kind, **vars(self)}


def flip_threshold(epsilon: float, others: int = 1) -> int:
    """A coin of 64 bits below this lies, choosing evenly among as many other answers.

    Its probability is never below ``others / (others + e^epsilon)``: the rounding of arithmetic is added, and
    the bias of an even choice among ``others`` by a remainder.

    >>> flip_threshold(math.log(3.0)) >= 2**62, flip_threshold(1e-30) == 2**63
    (True, True)
    """
    rarely = others / (others + math.exp(min(epsilon, 700.0)))  # beyond, 64 bits lie no more rarely
    return min(math.ceil(2.0**64 * rarely) + 2**13 + others, 2**64 * others // (others + 1))


def coins(count: int) -> np.ndarray:
    """So many words of 64 secret bits."""
    words = np.zeros(count, dtype=np.uint64)
    KeyStream(os.urandom(KEY_BYTES)).into(words.data)
    return words
