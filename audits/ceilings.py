"""Ceilings: the best score that a claimed epsilon leaves to any attack. One above it refutes the claim.

A score in [0, 1] is a function of what the attacker saw, for a truth that is fixed: a randomised test. Under
(epsilon, delta) for a unit, its mean with the unit's data is at most ``T(kappa)`` where ``kappa`` is its mean
without them and ``T(x) = min(delta + e^epsilon x, 1 - e^-epsilon (1 - delta - x))``. A claim holds at every
delta, so the smallest of these counts; for Gaussian noise that is ``Phi(Phi^-1(kappa) + mu)`` (Dong, Roth and
Su 2022, section 2; Hayes, Mahloujifar and Balle 2023 for reconstruction). A guess about k units together is
bounded by k applications (group privacy); a mean over guesses about single ones by one: ``T`` is concave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attacks.attack import CLIENT, OUTSIDER, SERVER, Guess
from attacks.neighgen import FEATURES
from audits.scoring import RESAMPLES, Score
from secure_fedgraph.privacy.ledger import Charge, report

DELTAS = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 0.03, 0.1, 0.2, 0.4)
READER = {SERVER: "server", CLIENT: "peers", OUTSIDER: "outsider"}
"""Adversary -> the reader whom the ledger counts against. Of a coalition no epsilon speaks."""
UNIT_OF = {FEATURES: "node"}
"""What a guess is about -> the unit that one of its parts is, where that is less than a client."""
MEANS = ("exact rows", "labels placed right", "accuracy")
"""Metrics that are means of scores about single units."""
JOINT = ("f1",)
"""Metrics of all targets taken together."""
RANKS = ("auc",)
"""Metrics of how well units that are in are told from units that are not, of which trivially half are."""
EVEN = 0.55
"""The area from which on a trivial guess tells units that are in from others by what they are."""
FEWEST = 1 - 0.025 ** (1 / RESAMPLES)
"""A trivial guess that was drawn so often and never right may still be, this often."""

Pairs = tuple[tuple[float, float], ...]


def most(kappa: float, pairs: Pairs, units: int = 1) -> float:
    """The best mean score about ``units`` units whose trivial guess reaches ``kappa``.

    Args:
        pairs: (epsilon, delta), all of one claim.

    >>> round(most(0.25, ((math.log(3), 0.0),)), 3)
    0.75
    >>> most(0.1, ((0.0, 0.0),))
    0.1
    """
    for _ in range(units):
        kappa = min((_one(kappa, *pair) for pair in pairs), default=1.0)
    return kappa


def _one(kappa: float, epsilon: float, delta: float) -> float:
    if epsilon > 700:
        return 1.0
    return max(
        kappa, min(1.0, delta + math.exp(epsilon) * kappa, 1 - math.exp(-epsilon) * (1 - delta - kappa))
    )


def most_auc(pairs: Pairs) -> float:
    """The largest area under a curve of true over false positives.

    >>> round(most_auc(((0.0, 0.0),)), 2), round(most_auc(((math.log(3), 0.0),)), 2)
    (0.5, 0.75)
    """
    places = np.linspace(0, 1, 2001)
    heights = np.array([most(float(place), pairs) for place in places])
    return float(min(1.0, (heights[1:] + heights[:-1]).sum() / 2 / 2000 + 1 / 2000))


@dataclass(frozen=True)
class Ceiling:
    """A bound and the claim that it comes from; no bound where None."""

    value: float | None = None
    claim: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """As a cell has it."""
        return {"ceiling": self.value, "claim": None if self.claim is None else dict(self.claim)}


@dataclass(frozen=True)
class Claims:
    """What a run claims: unit -> reader -> (epsilon, delta) at several deltas, finite ones only."""

    told_of: Mapping[str, Mapping[str, Pairs]] = field(default_factory=dict)

    @classmethod
    def told(cls, result: Mapping[str, Any]) -> Claims:
        """As far as a result says: at one delta."""
        found: dict[str, dict[str, Pairs]] = {}
        for unit, entry in (result.get("privacy") or {}).items():
            for reader, epsilon in entry.get("readers", {}).items():
                if epsilon != "inf":
                    found.setdefault(unit, {})[reader] = ((float(epsilon), float(entry["delta"])),)
        return cls(found)

    @classmethod
    def charged(
        cls, charges: Iterable[Charge], holders: int, units: tuple[str, ...], result: Mapping[str, Any]
    ) -> Claims:
        """At every delta of :data:`DELTAS`, composed anew from a run's charges."""
        first, charges = cls.told(result), list(charges)
        found = {unit: dict(readers) for unit, readers in first.told_of.items()}
        for delta in DELTAS if found else ():
            for unit, entry in report(charges, delta, holders, tuple(u for u in units if u in found)).items():
                for reader, pairs in found[unit].items():
                    epsilon = entry["readers"][reader]
                    if epsilon != "inf":
                        found[unit][reader] = (*pairs, (float(epsilon), delta))
        return cls(found)

    def over(self, guess: Guess, score: Score, adversary: str, behaviour: str) -> Ceiling:
        """The lowest ceiling that a claim puts on a score; none where no claim speaks for it.

        A claim about clients speaks for whatever is guessed about one; a claim about a smaller unit for
        guesses whose parts are such units.
        """
        reader = READER.get(adversary)
        if (
            reader is None
            or behaviour != "honest-but-curious"
            or score.metric not in (*MEANS, *JOINT, *RANKS)
        ):
            return Ceiling()
        kappa, found = max(score.baseline, FEWEST), []
        for unit, readers in self.told_of.items():
            pairs = readers.get(reader)
            if not pairs or unit not in ("client", UNIT_OF.get(guess.about)):
                continue
            units = 1
            if unit == "client":
                owners = [len(set(of)) for of in guess.targets.values()]
                units = sum(owners) if score.metric in JOINT else max(owners, default=1)
            elif score.metric in JOINT or (score.metric in RANKS and score.baseline > EVEN):
                continue  # of several units at once, or told apart by more than who was in
            bound = (
                most_auc(pairs) if score.metric in RANKS and unit != "client" else most(kappa, pairs, units)
            )
            epsilon, delta = pairs[0]
            claim = {"unit": unit, "epsilon": epsilon, "delta": delta, "against": reader, "units": units}
            found.append(Ceiling(bound, claim))
        return min(found, key=lambda one: one.value if one.value is not None else 1.0, default=Ceiling())
