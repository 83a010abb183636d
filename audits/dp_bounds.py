"""Ceilings: the best score that a claimed epsilon leaves to any attack. A score above it refutes the claim.

A score in [0, 1] is a function of what the attacker saw, for a truth that is fixed: a randomised test. Under
(epsilon, delta) for a unit, its mean with the unit's data is at most ``T(kappa)`` where ``kappa`` is its mean
without them and ``T(x) = min(delta + e^epsilon x, 1 - e^-epsilon (1 - delta - x))``. A claim holds at every
delta, so the smallest of these counts; for Gaussian noise that is ``Phi(Phi^-1(kappa) + mu)`` (Dong, Roth and
Su 2022, section 2; Hayes, Mahloujifar and Balle 2023 for reconstruction). A guess about k units together is
bounded by k applications (group privacy); a mean over guesses about single ones by one: ``T`` is concave.

A row that may be any of N nodes' is right with a chance of at most the sum over these nodes,
``N T(kappa / N)``. A cosine is taken as ``(1 + cosine) / 2``.

Which bound applies follows from the score's :class:`~secure_fedgraph.audits.scoring.ScoreKind`.

No bound holds for guesses that read more of the unit than what was released under the claim
(:data:`BEYOND`), for scores of no bounded kind (shares of what a guess itself chose to claim, remaining
noise, labels that every owner holds), and, for units smaller than an owner, for candidates and pairs that no
coin put in or out (B4, B5, D1, D3): their ``kappa`` is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from secure_fedgraph.attacks.attack import CLIENT, FEATURES, OUTSIDER, SERVER, Guess
from secure_fedgraph.attacks.mashes.pool import IDENTITIES
from secure_fedgraph.attacks.prototypes import CHANGE, GRAPHS
from secure_fedgraph.attacks.released import LINKS, MEMBERS, WORDS
from secure_fedgraph.attacks.weights.graph_structure import TRAINED_GRAPHS
from secure_fedgraph.attacks.weights.updates import SINGLE
from secure_fedgraph.audits.scoring import RESAMPLES, Score, ScoreKind
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.privacy.spent import report

DELTAS = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 0.03, 0.1, 0.2, 0.4)
READER = {SERVER: Reader.SERVER, CLIENT: Reader.PEERS, OUTSIDER: Reader.OUTSIDER}
"""Adversary -> the reader that the ledger counts against. No epsilon covers a coalition."""
UNIT_OF = {
    FEATURES: Unit.NODE,
    SINGLE: Unit.NODE,
    IDENTITIES: Unit.NODE,
    GRAPHS: Unit.GRAPH,
    TRAINED_GRAPHS: Unit.GRAPH,
    CHANGE: Unit.GRAPH,
}
"""What a guess is about -> the unit of one of its parts, where that is smaller than a client. Nodes that a
coin left out (G3) are not listed: such a node is out with its links, and the
audited model has charges of its own."""
ACROSS_OWNERS = (MEMBERS,)
"""Guesses whose ranks are over all owners: a pair may be of two owners, so both count."""
BEYOND: Mapping[str, tuple[Unit, ...]] = {
    LINKS: (Unit.CLIENT, Unit.NODE, Unit.EDGE, Unit.GRAPH),
    WORDS: (Unit.CLIENT, Unit.NODE, Unit.EDGE, Unit.GRAPH),
    CHANGE: (Unit.CLIENT,),
}
"""Guesses that read more than the release that a claim is about: a prediction service answers with the
owner's own links, embeddings are of its own features, and the earlier run had the same owner's other
graphs."""
FEWEST = 1 - 0.025 ** (1 / RESAMPLES)
"""A trivial guess that was never right in :data:`RESAMPLES` draws may still be right this often."""

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


def _most_of(score: Score, pairs: Pairs, units: int) -> float:
    """The best score about ``units`` units, on the metric's own scale."""
    if score.kind is ScoreKind.COSINE:
        return 2 * most((1 + max(score.baseline, -1.0)) / 2, pairs, units) - 1
    return most(max(score.baseline, FEWEST), pairs, units)


def _any_of(score: Score, pairs: Pairs) -> float:
    """The best share of rows that are some node's: the sum over the nodes, each bounded by itself."""
    nodes = max(1.0, score.details["nodes"])
    return min(1.0, nodes * most(max(score.baseline, FEWEST) / nodes, pairs))


@dataclass(frozen=True)
class Ceiling:
    """A bound and the claim that it comes from; no bound where None."""

    value: float | None = None
    claim: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """As a cell of the grid has it."""
        return {"ceiling": self.value, "claim": None if self.claim is None else dict(self.claim)}


@dataclass(frozen=True)
class Claims:
    """What a run claims: unit -> reader -> (epsilon, delta) at several deltas, finite ones only."""

    by_unit: Mapping[str, Mapping[str, Pairs]] = field(default_factory=dict)

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> Claims:
        """From a result, at its one delta."""
        claims: dict[str, dict[str, Pairs]] = {}
        for unit, entry in (result.get("privacy") or {}).items():
            for reader, epsilon in entry.get("readers", {}).items():
                if epsilon != "inf":
                    claims.setdefault(unit, {})[reader] = ((float(epsilon), float(entry["delta"])),)
        return cls(claims)

    @classmethod
    def from_charges(
        cls, charges: Iterable[Charge], holders: int, units: tuple[str, ...], result: Mapping[str, Any]
    ) -> Claims:
        """At every delta of :data:`DELTAS`, composed again from a run's charges."""
        first, charges = cls.from_result(result), list(charges)
        claims = {unit: dict(readers) for unit, readers in first.by_unit.items()}
        for delta in DELTAS if claims else ():
            for unit, entry in report(
                charges, delta, holders, tuple(u for u in units if u in claims)
            ).items():
                for reader, pairs in claims[unit].items():
                    epsilon = entry["readers"][reader]
                    if epsilon != "inf":
                        claims[unit][reader] = (*pairs, (float(epsilon), delta))
        return cls(claims)

    def over(self, guess: Guess, score: Score, adversary: str, behaviour: str) -> Ceiling:
        """The lowest ceiling that a claim puts on a score; none where no claim covers it.

        A claim about clients covers whatever is guessed about one; a claim about a smaller unit for
        guesses whose parts are such units.
        """
        reader, kind = READER.get(adversary), score.kind
        if reader is None or behaviour != "honest-but-curious" or kind is ScoreKind.UNBOUNDED:
            return Ceiling()
        ceilings = []
        for unit, readers in self.by_unit.items():
            pairs = readers.get(reader)
            if not pairs or unit not in (Unit.CLIENT, UNIT_OF.get(guess.about)):
                continue
            if unit in BEYOND.get(guess.about, ()):
                continue
            units = 1
            if unit == Unit.CLIENT:
                owners = [len(set(of)) for of in guess.targets.values()]
                units = sum(owners) if kind is ScoreKind.JOINT else max(owners, default=1)
                units += guess.about in ACROSS_OWNERS
                bound = _most_of(score, pairs, units)
            elif kind in (ScoreKind.JOINT, ScoreKind.RANK):
                continue  # about several units at once, or about more than who was in
            elif kind is ScoreKind.ROWS:
                if "nodes" not in score.details:
                    continue
                bound = _any_of(score, pairs)
            else:
                bound = _most_of(score, pairs, 1)
            epsilon, delta = pairs[0]
            claim = {"unit": unit, "epsilon": epsilon, "delta": delta, "against": reader, "units": units}
            ceilings.append(Ceiling(bound, claim))
        return min(ceilings, key=lambda one: one.value if one.value is not None else 1.0, default=Ceiling())
