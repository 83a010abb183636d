"""A finished run with everything that is true about it: for judges and knowledge, never for an attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.attacks.attack import CLIENT, COALITION, LAST, OUTSIDER, SERVER
from secure_fedgraph.federation import Federation
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.running.run import Run

Made = TypeVar("Made")
_MADE: dict[tuple[Any, ...], Any] = {}
_MOST = 12


@dataclass(frozen=True)
class FinishedRun:
    """One run under audit.

    Args:
        federation: the owners and their graphs.
        algorithm: what ran, with its settings.
        transcript: everybody's; a view is cut from it.
        seed: whatever is seeded can be drawn again from here.
        result: the run's result; empty where a test trained without one.
        released: the model that the run published, where it published one.
        policy: the protections that were bound; None for a run that was read from disk.
    """

    federation: Federation = field(repr=False)
    algorithm: Algorithm
    transcript: Transcript = field(repr=False)
    seed: int = 0
    result: Mapping[str, Any] = field(default_factory=dict, repr=False)
    released: State | None = field(default=None, repr=False)
    policy: BoundPolicy | None = field(default=None, repr=False)

    @classmethod
    def of(cls, run: Run, seed: int, result: Mapping[str, Any] | None = None) -> FinishedRun:
        """A run that has just ended."""
        released = run.algorithm.released(run.state)
        return cls(run.federation, run.algorithm, run.transcript, seed, result or {}, released, run.policy)

    def parties(self, adversary: str) -> tuple[str, ...]:
        """Whose messages an adversary reads.

        A client is the first owner by name, the last client the last; a coalition all of them but the last,
        without the server; an outsider reads no message.
        """
        owners = sorted(self.federation.names)
        known = {SERVER: (SERVER,), CLIENT: tuple(owners[:1]), LAST: tuple(owners[-1:])}
        known |= {COALITION: tuple(owners[:-1]), OUTSIDER: ()}
        if adversary not in known:
            raise unknown_name("adversary", adversary, known)
        return known[adversary]


def once(key: tuple[Any, ...], finished: FinishedRun, make: Callable[[], Made]) -> Made:
    """What was already made for the same run: both aims of an attack, and several attacks, need the same."""
    if key not in _MADE:
        while len(_MADE) >= _MOST:
            del _MADE[next(iter(_MADE))]
        _MADE[key] = (make(), finished)  # the run is kept, so that no other gets its id
    made: Made = _MADE[key][0]
    return made
