"""What groups will cost, by the cost of earlier ones, and in which order they run.

Costs are seconds on one core. Configured runs and controls are estimated separately: a control often trains a
fraction of what it controls. Until one of a kind was measured, a rehearsal of two rounds takes its place: the
time to the end of the first round, and that of the second.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from secure_fedgraph.attacks.sparse_rows import one_thread
from secure_fedgraph.audits.empirical_dp.one_run import CROWD, RUNS
from secure_fedgraph.audits.grid.groups import Group
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute

PLAIN = "plaintext"
FACTORS = {"homomorphic": 2.5, "distributed_dp": 1.5, "strictest": 1.5, "masked": 1.2, "local_dp": 1.2}
"""A policy's cost over plaintext's, until it was measured on the algorithm."""
ATTACK = 5.0
"""Seconds of one attack by one adversary, until it was measured."""
SEARCH = 60.0
"""The same, of an attack that searches without ``--effort``."""
DAY = 86_400.0


@dataclass(frozen=True)
class Rehearsed:
    """Seconds to the end of the first round, and of the second alone.

    Args:
        whole: whether the rehearsal ended; otherwise a run takes at least so long.
    """

    first: float
    further: float
    whole: bool = True


Kind = tuple[str, bool]
"""An algorithm, and whether the run is as configured."""


def kind_of(group: Group) -> Kind:
    """Runs of one kind cost about the same."""
    return group.chosen.algorithm, group.configured


def rehearsed(experiment: Experiment) -> Rehearsed:
    """Two rounds in plaintext, with nothing kept and nobody attacking."""
    stamps = [time.perf_counter()]
    short = experiment.under(PLAIN).model_copy(update={"rounds": 2})
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        execute(short, None, on_round=lambda row: stamps.append(time.perf_counter()))
    return Rehearsed(stamps[1] - stamps[0], stamps[-1] - stamps[-2] if len(stamps) > 2 else 0.0)


def rounds_of(experiment: Experiment) -> int:
    """How many rounds it runs."""
    return experiment.rounds or experiment.make_algorithm().rounds


@dataclass
class Costs:
    """Measured costs, and estimates from them."""

    seconds: dict[int, tuple[Group, float]] = field(default_factory=dict)
    rehearsals: dict[Kind, Rehearsed] = field(default_factory=dict)

    def of(self, group: Group) -> float | None:
        """Seconds that a group will take; None where nothing of its algorithm was measured."""
        if id(group) in self.seconds:
            return self.seconds[id(group)][1]
        if group.canaries:
            return self._of_canaries(group)
        nearest: tuple[Callable[[Group], Any], ...] = (
            lambda g: (g.chosen.algorithm, g.chosen.policy, g.variant.name),
            lambda g: (g.chosen.algorithm, g.variant.name),
            lambda g: (*kind_of(g), g.chosen.policy),
            kind_of,
        )
        estimate = next((cost for same in nearest if (cost := self._mean(group, same)) is not None), None)
        if estimate is None:
            estimate = self._from_rehearsal(group)
        return self._mean(group, lambda g: g.chosen.algorithm) if estimate is None else estimate

    def measured(self, group: Group) -> bool:
        """Whether the estimate is of runs of the group's own kind."""
        return self._mean(group, kind_of) is not None

    def _mean(self, group: Group, same: Callable[[Group], Any]) -> float | None:
        """The mean cost of the measured groups for which ``same`` gives what it gives for this group."""
        mine = [(g, s) for g, s in self.seconds.values() if same(g) == same(group) and not g.canaries]
        return fmean(s / _factor(g) for g, s in mine) * _factor(group) if mine else None

    def _from_rehearsal(self, group: Group) -> float | None:
        algorithm, configured = kind_of(group)
        rehearsal = self.rehearsals.get(
            (algorithm, configured), self.rehearsals.get((algorithm, not configured))
        )
        if rehearsal is None:
            return None
        further = rehearsal.further * (rounds_of(group.experiment) - 1) * _factor(group)
        return rehearsal.first + further + attack_seconds(group)

    def _of_canaries(self, group: Group) -> float | None:
        """As many runs as the canaries may need, each as long as an attacked run, for it has more clients."""
        plain = self.of(replace(group, canaries=0))
        runs = min(math.ceil(group.canaries / CROWD), RUNS)
        return None if plain is None else plain * runs

    def total(self, groups: Iterable[Group]) -> float:
        """Seconds of several on one core, as far as they are known."""
        return sum(self.of(group) or 0.0 for group in groups)


def _factor(group: Group) -> float:
    return FACTORS.get(group.chosen.policy, 1.0)


def attack_seconds(group: Group) -> float:
    """A guess at what the attacks of a group take."""
    seconds = 0.0
    for attack in group.variant.attacks:
        many = sum(adversary in group.who for adversary in attack.adversaries)
        seconds += many * (ATTACK if not attack.searches else 3 * group.effort if group.effort else SEARCH)
    return seconds


def most_informative_first(groups: Iterable[Group], costs: Costs | None = None) -> list[Group]:
    """The groups in their order, the most informative first.

    Attacks on unprotected runs come first: without them an attack that reads nothing shows nothing. Then come
    the policies that should stop them, which also show what is left; then the attacks' controls, unprotected
    and then under the policies; then further seeds. Algorithms take turns; in each turn the cheaper groups
    come first.
    """
    turns: dict[tuple[int, str], int] = {}

    def place(group: Group) -> tuple[int, int]:
        bare = group.chosen.policy == PLAIN
        rank = (0 if group.configured else 2) + (0 if bare else 1)
        rank += 4 * seeds.index(group.chosen.seed)
        turn = turns[rank, group.chosen.algorithm] = turns.get((rank, group.chosen.algorithm), 0) + 1
        return rank, turn

    listed = list(groups)
    seeds = list(dict.fromkeys(group.chosen.seed for group in listed))
    places = {id(group): place(group) for group in listed}
    return sorted(listed, key=lambda group: (*places[id(group)], (costs and costs.of(group)) or 0.0))


def in_words(seconds: float) -> str:
    """A length of time for people.

    >>> in_words(42), in_words(4000), in_words(260000)
    ('42 s', '1 h 6 min', '3.0 days')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 1.5 * DAY:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{seconds / DAY:.1f} days"


def cost_estimate(groups: list[Group], costs: Costs, workers: int, budget: float | None) -> Mapping[str, Any]:
    """The estimate as ``audit.json`` has it, with a sentence."""
    seconds = costs.total(groups) / workers
    known = sum(costs.of(group) is not None for group in groups)
    least = any(not one.whole for one in costs.rehearsals.values())
    about = "at least" if least or known < len(groups) else "about"
    sentence = f"{len(groups)} runs, {about} {in_words(seconds)} on {workers} process{'es' * (workers > 1)}"
    if budget is not None and seconds > budget:
        sentence += f"; the most telling go first, for {in_words(budget)}"
    elif budget is None and seconds > DAY:
        sentence += ": with --budget-minutes 60 only the most telling run, for an hour"
    return {
        "runs": len(groups),
        "estimated_runs": known,
        "seconds": round(seconds, 1),
        "workers": workers,
        "budget_seconds": budget,
        "sentence": sentence,
    }
