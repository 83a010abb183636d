"""Simulated drop-outs: who stops answering in which round, from which step on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from secure_fedgraph.core.errors import BadInput, check_number, check_whole, wrong_type
from secure_fedgraph.core.message import ANSWER

STEPS = ("advertise", "share", ANSWER, "agree", "unmask")
"""The steps of a sum that survives drop-outs, in order."""


@dataclass(frozen=True)
class Dropouts:
    """Clients that stop answering in a round, from some step of a sum on, and come back in the next round.

    They are not asked from then on, so their memory stays as it was. In exchanges that do not survive a
    drop-out everybody answers: only drop-outs that a sum survives are simulated.

    Args:
        share: of each round's cohort, rounded down: that many drop out, each from a random step on.
        seed: decides which clients, and from which step on.
        at: ``(round, client) -> step``, set by hand; it comes before the share.

    Raises:
        BadInput: for a share outside 0 to 1, or an unknown step.

    >>> sorted(Dropouts(at={(1, "a"): "agree"}).gone(1, "unmask", ("a", "b")))
    ['a']
    """

    share: float = 0.0
    seed: int = 0
    at: Mapping[tuple[int, str], str] = field(default_factory=dict)
    _left: set[tuple[int, str]] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_number("share", self.share)
        check_whole("seed", self.seed, 0)
        if not isinstance(self.at, Mapping):
            raise wrong_type("at", self.at, 'give a dict such as {(1, "owner-0"): "agree"}')
        if not 0 <= self.share <= 1:
            raise BadInput(f"share {self.share}: drop-outs are a share of the cohort, from 0 to 1")
        unknown = set(self.at.values()) - set(STEPS)
        if unknown:
            raise BadInput(f"step {min(unknown)!r}: clients drop out from one of {', '.join(STEPS)} on")

    def leaving(self, round: int, cohort: tuple[str, ...]) -> dict[str, str]:
        """Client -> the step from which it does not answer in this round."""
        order = sorted(cohort, key=lambda name: self._number(round, "who", name))
        leavers = order[: math.floor(self.share * len(cohort) + 1e-9)]
        steps = {name: STEPS[self._number(round, "when", name) % len(STEPS)] for name in leavers}
        return steps | {name: step for (when, name), step in self.at.items() if when == round}

    def gone(self, round: int, step: str, cohort: tuple[str, ...]) -> set[str]:
        """The clients that do not answer this step. Who left stays away for the rest of the round."""
        reached = STEPS.index(step)
        for name, left_at in self.leaving(round, cohort).items():
            if reached >= STEPS.index(left_at):
                self._left.add((round, name))
        return {name for when, name in self._left if when == round}

    def _number(self, round: int, purpose: str, name: str) -> int:
        label = f"{self.seed}/{round}/{purpose}/{name}".encode()
        return int.from_bytes(hashlib.sha256(label).digest()[:8], "little")
