"""What the runs of a grid will cost, by the cost of earlier ones, and in which order they run.

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
from secure_fedgraph.audits.grid.planned_runs import PlannedRun
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.report import text as words
from secure_fedgraph.running.outlook import of_round

PLAIN = "plaintext"
FACTORS = {"homomorphic": 2.5, "distributed_dp": 1.5, "strictest": 1.5, "masked": 1.2, "local_dp": 1.2}
"""A policy's cost over plaintext's, until it was measured on the algorithm."""
ATTACK = 5.0
"""Seconds of one attack by one adversary, until it was measured."""
SEARCH = 60.0
"""The same, of an attack that searches without ``--effort``."""
DAY = 86_400.0


@dataclass(frozen=True)
class TimedTrial:
    """What two rounds cost, in seconds to the end of the first round, and of the second alone.

    Args:
        whole: whether the rehearsal ended; otherwise a run takes at least so long.
        up, down: bytes of both rounds and of what came before them, and of the second round alone.
    """

    first: float
    further: float
    whole: bool = True
    up: tuple[int, int] = (0, 0)
    down: tuple[int, int] = (0, 0)


Kind = tuple[str, bool]
"""An algorithm, and whether the run is as configured."""


def kind_of(planned: PlannedRun) -> Kind:
    """Runs of one kind cost about the same."""
    return planned.chosen.algorithm, planned.configured


def timed_trial(experiment: Experiment) -> TimedTrial:
    """Two rounds in plaintext of what runs, with nothing kept and nobody attacking."""
    stamps = [time.perf_counter()]
    short, runs = experiment.with_policy(PLAIN).model_copy(update={"rounds": 2}), experiment.make_algorithm()
    if type(short.make_algorithm()) is not type(runs):  # plaintext has no budget, and so no form for it
        set_by_it = {} if runs.form is None else dict(runs.form.settings)
        changed = {"algorithm": runs.name, "training": {**set_by_it, **runs.by_hand}}
        short = short.model_copy(update=changed)
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = execute(short, None, on_round=lambda row: stamps.append(time.perf_counter()))
    seconds = stamps[1] - stamps[0], stamps[-1] - stamps[-2] if len(stamps) > 2 else 0.0
    sent, last = run.transcript.traffic(), of_round(run.transcript, run.algorithm.warm_up + 2)
    up, down = ((sent[side], last[side]) for side in ("up", "down"))
    return TimedTrial(*seconds, up=up, down=down)


def rounds_of(experiment: Experiment) -> int:
    """How many rounds it runs."""
    return experiment.rounds or experiment.make_algorithm().rounds


@dataclass
class Costs:
    """Measured costs, and estimates from them."""

    seconds: dict[int, tuple[PlannedRun, float]] = field(default_factory=dict)
    rehearsals: dict[Kind, TimedTrial] = field(default_factory=dict)

    def of(self, planned: PlannedRun) -> float | None:
        """Seconds that a run will take; None where nothing of its algorithm was measured."""
        if id(planned) in self.seconds:
            return self.seconds[id(planned)][1]
        if planned.canaries:
            return self._of_canaries(planned)
        nearest: tuple[Callable[[PlannedRun], Any], ...] = (
            lambda g: (g.chosen.algorithm, g.chosen.policy, g.variant.name),
            lambda g: (g.chosen.algorithm, g.variant.name),
            lambda g: (*kind_of(g), g.chosen.policy),
            kind_of,
        )
        estimate = next((cost for same in nearest if (cost := self._mean(planned, same)) is not None), None)
        if estimate is None:
            estimate = self._from_rehearsal(planned)
        return self._mean(planned, lambda g: g.chosen.algorithm) if estimate is None else estimate

    def sent(self, planned: PlannedRun) -> tuple[int, int] | None:
        """Bytes up and down of a run, if it sent what plaintext sends; None without a whole rehearsal."""
        rehearsal = self._rehearsal(planned)
        if rehearsal is None or not rehearsal.whole:
            return None
        rounds = rounds_of(planned.experiment) - 2
        up, down = (both + rounds * last for both, last in (rehearsal.up, rehearsal.down))
        times = _runs_with(planned.canaries) if planned.canaries else 1
        return times * up, times * down

    def measured(self, planned: PlannedRun) -> bool:
        """Whether the estimate is of runs of the same kind."""
        return self._mean(planned, kind_of) is not None

    def _mean(self, planned: PlannedRun, same: Callable[[PlannedRun], Any]) -> float | None:
        """The mean cost of the measured runs for which ``same`` gives what it gives for this run."""
        mine = [(g, s) for g, s in self.seconds.values() if same(g) == same(planned) and not g.canaries]
        return fmean(s / _factor(g) for g, s in mine) * _factor(planned) if mine else None

    def _from_rehearsal(self, planned: PlannedRun) -> float | None:
        rehearsal = self._rehearsal(planned)
        if rehearsal is None:
            return None
        further = rehearsal.further * (rounds_of(planned.experiment) - 1) * _factor(planned)
        return rehearsal.first + further + attack_seconds(planned)

    def _rehearsal(self, planned: PlannedRun) -> TimedTrial | None:
        algorithm, configured = kind_of(planned)
        other = self.rehearsals.get((algorithm, not configured))
        return self.rehearsals.get((algorithm, configured), other)

    def _of_canaries(self, planned: PlannedRun) -> float | None:
        """As many runs as the canaries may need, each as long as an attacked run, for it has more clients."""
        plain = self.of(replace(planned, canaries=0))
        return None if plain is None else plain * _runs_with(planned.canaries)

    def total(self, runs: Iterable[PlannedRun]) -> float:
        """Seconds of several on one core, as far as they are known."""
        return sum(self.of(planned) or 0.0 for planned in runs)


def _runs_with(canaries: int) -> int:
    return min(math.ceil(canaries / CROWD), RUNS)


def _factor(planned: PlannedRun) -> float:
    return FACTORS.get(planned.chosen.policy, 1.0)


def attack_seconds(planned: PlannedRun) -> float:
    """A guess at what the attacks on a run take."""
    seconds = 0.0
    for attack in planned.variant.attacks:
        many = sum(adversary in planned.who for adversary in attack.adversaries)
        seconds += many * (
            ATTACK if not attack.searches else 3 * planned.effort if planned.effort else SEARCH
        )
    return seconds


def most_informative_first(runs: Iterable[PlannedRun], costs: Costs | None = None) -> list[PlannedRun]:
    """The runs in their order, the most informative first.

    Attacks on unprotected runs come first: without them an attack that reads nothing shows nothing. Then come
    the policies that should stop them, which also show what is left; then the attacks' controls, unprotected
    and then under the policies; then further seeds. Algorithms take turns; in each turn the cheaper runs
    come first.
    """
    turns: dict[tuple[int, str], int] = {}

    def place(planned: PlannedRun) -> tuple[int, int]:
        bare = planned.chosen.policy == PLAIN
        rank = (0 if planned.configured else 2) + (0 if bare else 1)
        rank += 4 * seeds.index(planned.chosen.seed)
        turn = turns[rank, planned.chosen.algorithm] = turns.get((rank, planned.chosen.algorithm), 0) + 1
        return rank, turn

    listed = list(runs)
    seeds = list(dict.fromkeys(planned.chosen.seed for planned in listed))
    places = {id(planned): place(planned) for planned in listed}
    return sorted(listed, key=lambda planned: (*places[id(planned)], (costs and costs.of(planned)) or 0.0))


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


def cost_estimate(
    runs: list[PlannedRun], costs: Costs, workers: int, budget: float | None, memory: int = 0
) -> Mapping[str, Any]:
    """The estimate as ``audit.json`` has it, with a sentence.

    Args:
        memory: bytes that the largest rehearsal had at most; 0 where there was none.
    """
    seconds = costs.total(runs) / workers
    known = sum(costs.of(planned) is not None for planned in runs)
    least = any(not one.whole for one in costs.rehearsals.values())
    about = "at least" if least or known < len(runs) else "about"
    sentence = f"{len(runs)} runs, {about} {in_words(seconds)} on {workers} process{'es' * (workers > 1)}"
    sent = [traffic for planned in runs if (traffic := costs.sent(planned)) is not None]
    up, down = (sum(side) for side in zip(*sent, strict=True)) if len(sent) == len(runs) else (0, 0)
    if up or down:
        sentence += f"; they send {words.size(up)} up and {words.size(down)} down, or more where encrypted"
    if memory:
        sentence += f"; {words.size(memory)} of memory for each process"
    if budget is not None and seconds > budget:
        sentence += f"; the most telling go first, for {in_words(budget)}"
    elif budget is None and seconds > DAY:
        sentence += ": with --budget-minutes 60 only the most telling run, for an hour"
    return {
        "runs": len(runs),
        "estimated_runs": known,
        "seconds": round(seconds, 1),
        "up": up,
        "down": down,
        "memory": memory,
        "workers": workers,
        "budget_seconds": budget,
        "sentence": sentence,
    }
