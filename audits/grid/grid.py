"""The leakage grid: algorithm x policy x attack x adversary x seed. A cell is refused, blind, or a score."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secure_fedgraph.attacks import Attack
from secure_fedgraph.audits.grid.attacked import attacked, quietly
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.audits.grid.choices import (
    AS_CONFIGURED,
    CANARIES,
    Variant,
    adversaries,
    left_out,
    readers,
    unscored,
    variants,
)
from secure_fedgraph.audits.grid.estimates import (
    Costs,
    Kind,
    TimedTrial,
    cost_estimate,
    kind_of,
    most_informative_first,
    rounds_of,
    timed_trial,
)
from secure_fedgraph.audits.grid.options import checked_options
from secure_fedgraph.audits.grid.planned_runs import PlannedRun, read_cells, write_cells
from secure_fedgraph.core import errors
from secure_fedgraph.core.errors import wrong_type
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.pool import Failed, Pool, default_workers, tried
from secure_fedgraph.running.outlook import peak_memory

Progress = Callable[[str], None]
MANY = 12
"""A grid of so many runs is rehearsed, so that it can say how long it takes before it starts."""
ROUNDS = 30
"""Runs of more rounds are rehearsed too, however few they are."""
SMALL = 30.0
"""Seconds of work below which no process is worth starting."""
PATIENCE = 60.0
"""Seconds for rehearsals; a longer one counts as at least that long."""
RESERVE = 20.0
"""Seconds of a budget that are kept for the page, and at most a tenth of it."""


def audit(
    experiment: Experiment | Sequence[Experiment],
    policies: Iterable[str] = (),
    attacks: Iterable[type[Attack]] = (),
    seeds: Iterable[int] = (0,),
    out: Path | str | None = None,
    progress: Progress = lambda text: None,
    adversary: str | None = None,
    controls: Collection[str] | None = None,
    effort: float | None = None,
    workers: int | None = 1,
    budget: float | None = None,
    say: Progress = lambda text: None,
    canaries: int = 0,
    probes: bool = False,
) -> Audit:
    """Runs the grid.

    For every algorithm, policy and seed: one run as configured, and one for each setting that attacks declare
    as controls, so that a weak result is seen beside a strong one. With a folder each run's cells are kept
    under ``cells/`` as it ends, and a later call with the same configuration takes them from there.

    Args:
        experiment: one, or one for each algorithm.
        policies: by name.
        attacks: classes, such as the values of ``secure_fedgraph.attacks.ATTACKS``.
        seeds: whole numbers from 0.
        out: folder of the runs and their cells.
        adversary: this one only; by default all that the attacks declare.
        controls: these control settings only, by name; by default all that the attacks declare.
        effort: processor seconds that one search may take; by default the attacks' own limits.
        workers: processes; None: two where there is memory and work enough for them.
        budget: seconds that all of it may take. What did not fit is named in ``not_run``.
        say: called with the estimate before a large grid starts, and after the first run of a small one where
            the others will take long.
        canaries: for each policy that adds noise so many canaries, in runs of their own (first seed only).
        probes: whether each algorithm and its protections are called again on little data (first seed only).

    Raises:
        BadInput: before any work, for an option that is unknown, of another type or out of range.
    """
    started = time.monotonic()
    for name, function in (("progress", progress), ("say", say)):
        if not callable(function):
            raise wrong_type(name, function, "give a function of a text")
    asked = checked_options(
        experiment, policies, attacks, seeds, out, adversary, controls, effort, workers, budget, canaries,
        probes,
    )  # fmt: skip
    controls = asked.controls
    wanted = planned_runs(
        asked.experiments, asked.policies, asked.attacks, asked.seeds, adversary, controls, effort, canaries,
        probes,
    )  # fmt: skip
    call = _GridRunner(wanted, asked.out, progress, workers, budget, say, started)
    call.run()
    audited = call.audit(controls, effort)
    audited.not_run += _without_their_settings(wanted, asked.attacks, controls)
    return audited


def _without_their_settings(
    wanted: Sequence[PlannedRun], attacks: Sequence[type[Attack]], controls: Collection[str] | None
) -> list[dict[str, Any]]:
    """The cells of controls whose settings an algorithm lacks: no run was ever wanted for them."""
    chosen = {(g.chosen.algorithm, g.chosen.policy, g.chosen.seed): g for g in wanted}
    return [
        {**unscored(planned.chosen, attack, adversary, name), "reason": reason, "failed": False}
        for planned in chosen.values()
        for attack, name, reason in left_out(planned.chosen, attacks, controls)
        for adversary in attack.adversaries
        if adversary in planned.who
    ]


def planned_runs(
    experiments: Sequence[Experiment],
    policies: Sequence[str],
    attacks: Sequence[type[Attack]],
    seeds: Sequence[int],
    adversary: str | None = None,
    controls: Collection[str] | None = None,
    effort: float | None = None,
    canaries: int = 0,
    probes: bool = False,
) -> list[PlannedRun]:
    """The runs of a grid, in the order of its table.

    An attack whose channel an algorithm lacks is left out, where others of the attacks have theirs.
    """
    listed, who = [], adversaries(attacks, adversary)
    named = None if controls is None else tuple(controls)
    for one in experiments:
        mine = readers(one, attacks) or list(attacks) if len(experiments) > 1 else attacks
        for seed in seeds:
            for policy in policies:
                chosen = one.with_policy(policy).model_copy(update={"seed": seed})
                for variant in variants(chosen, mine, controls):
                    # probes depend on no seed, and controls are settings of what is attacked
                    probed = probes and variant.name == AS_CONFIGURED and seed == seeds[0]
                    listed.append(PlannedRun(chosen, variant, who, named, effort, probed=probed))
                if canaries and chosen.adds_noise and seed == seeds[0]:
                    alone = Variant(CANARIES, {}, ())
                    listed.append(PlannedRun(chosen, alone, who, canaries=canaries))
    return listed


def _earlier(planned: PlannedRun, out: Path | None) -> dict[str, Any] | None:
    planned.experiment.make_algorithm()
    return None if out is None else read_cells(out, planned)


def _is_long(planned: PlannedRun) -> bool:
    return rounds_of(planned.experiment) > ROUNDS


def _rehearse(planned: PlannedRun) -> TimedTrial:
    return timed_trial(planned.experiment)


@dataclass
class _GridRunner:
    """One call over a grid: the cells of earlier calls, the runs that are left, and their cells."""

    wanted: list[PlannedRun]
    out: Path | None
    progress: Progress
    workers: int | None
    budget: float | None
    say: Progress
    started: float
    contents: dict[int, dict[str, Any]] = field(default_factory=dict)
    missing: dict[int, Failed] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    estimate: dict[str, Any] | None = None

    @property
    def deadline(self) -> float | None:
        """When the budget ends, but for the page."""
        return self.budget and self.started + self.budget - min(RESERVE, self.budget / 10)

    def run(self) -> None:
        for planned in self.wanted:
            earlier = tried(_earlier, planned, self.out)
            if isinstance(earlier, Failed):  # a control whose settings do not go together
                self._take_or_note(planned, earlier)
            elif earlier is not None:
                self._take(planned, earlier)
        done = {*self.contents, *self.missing}
        todo = most_informative_first([planned for planned in self.wanted if id(planned) not in done])
        large = self.budget is not None or len(self.wanted) >= MANY or any(map(_is_long, todo))
        if todo and not large and self.workers is None:
            self._run_here(todo.pop(0))  # its time shows whether processes are worth starting
            if self.costs.total(todo) > SMALL:
                self._tell(todo, default_workers(len(todo)), peak_memory())
        workers = default_workers(len(todo)) if self.workers is None else self.workers
        with Pool(workers) as pool:
            if todo and large:
                self._foresee(todo, workers, pool)
            if self.budget is None and (workers == 1 or self._is_small(todo)):
                for planned in todo:
                    self._run_here(planned)
            else:
                self._side_by_side(pool, todo)
        self._check_any()

    def _is_small(self, todo: list[PlannedRun]) -> bool:
        """Whether processes would cost more than they save."""
        known = all(self.costs.of(planned) is not None for planned in todo)
        return self.workers is None and known and self.costs.total(todo) < SMALL

    def audit(self, controls: Collection[str] | None, effort: float | None) -> Audit:
        """The cells in the order of the grid's table, and what was not run."""
        audited = Audit(controls=None if controls is None else tuple(controls), effort=effort)
        audited.estimate = self.estimate
        for planned in self.wanted:
            made = self.contents.get(id(planned))
            if made is None:
                reason = self.missing[id(planned)].reason
                why = self.missing[id(planned)]  # of a control it may be that its settings do not go together
                failed = why.unforeseen or (planned.configured and not why.stopped)
                audited.not_run += [{**cell, "reason": reason, "failed": failed} for cell in planned.cells()]
                continue
            for name in ("cells", "runs", "reconstructions", "conformance", "empirical"):
                getattr(audited, name).extend(made[name])
            audited.not_run += made.get("not_run", [])
        return audited

    def _run_here(self, planned: PlannedRun) -> None:
        self._take_or_note(planned, tried(attacked, planned, self.out))

    def _side_by_side(self, pool: Pool, todo: list[PlannedRun]) -> None:
        waiting = most_informative_first(todo, self.costs)
        while waiting or pool.working:
            while waiting and pool.free:
                planned = next((one for one in waiting if self._fits(one)), None)
                if planned is None:
                    break
                waiting.remove(planned)
                pool.start(planned, quietly, planned, self.out)
            if not pool.working:
                break
            for planned, made in pool.finished(self.deadline):
                self._take_or_note(planned, made)
        for planned in waiting:
            left = max(0.0, (self.deadline or 0.0) - time.monotonic())
            cost = self.costs.of(planned) or 0.0
            self.missing[id(planned)] = Failed(
                f"about {cost:.0f} s are estimated for its run and {left:.0f} s of the budget were left",
                stopped=True,
            )

    def _fits(self, planned: PlannedRun) -> bool:
        left = float("inf") if self.deadline is None else self.deadline - time.monotonic()
        return left > 0 and (self.costs.of(planned) or 0.0) <= left

    def _foresee(self, todo: list[PlannedRun], workers: int, pool: Pool) -> None:
        """Reports the estimate before the first run, after rehearsals of kinds that were never measured."""
        unknown: dict[Kind, PlannedRun] = {}
        for planned in todo:
            if not self.costs.measured(planned) and not planned.canaries:
                unknown.setdefault(kind_of(planned), planned)
        until = min(time.monotonic() + PATIENCE, self.deadline or float("inf"))
        waiting = sorted(unknown.items(), key=lambda one: not one[1].configured)
        while pool.working or (waiting and time.monotonic() < until):
            while waiting and pool.free:
                kind, planned = waiting.pop(0)
                pool.start(kind, _rehearse, planned)
            for kind, made in pool.finished(until):
                if isinstance(made, TimedTrial):  # an error comes again in its runs, and is reported then
                    self.costs.rehearsals[kind] = made
                elif made.stopped:
                    self.costs.rehearsals[kind] = TimedTrial(PATIENCE, 0.0, whole=False)
        self._tell(todo, workers, pool.memory)

    def _tell(self, todo: list[PlannedRun], workers: int, memory: int) -> None:
        self.estimate = dict(cost_estimate(todo, self.costs, workers, self.budget, memory))
        self.say(self.estimate["sentence"])

    def _take_or_note(self, planned: PlannedRun, made: Any) -> None:
        if isinstance(made, Failed):
            self.missing[id(planned)] = made
            self.progress(f"{planned.name}: {made.reason}")
            return
        whole = not made.get("not_run")  # what failed is tried again by a later call
        unwritten = tried(write_cells, self.out, planned, made) if self.out is not None and whole else None
        if isinstance(unwritten, Failed):
            self._take_or_note(planned, unwritten)
        else:
            self._take(planned, made)

    def _take(self, planned: PlannedRun, made: dict[str, Any]) -> None:
        self.contents[id(planned)] = made
        lost = [] if made["runs"] else made.get("not_run", [])
        if lost:  # it stopped midway, so its time says nothing of a whole run
            self.progress(f"{planned.name}: {lost[0]['reason']}")
            return
        self.costs.seconds[id(planned)] = (planned, float(made["seconds"]))
        self.progress(planned.name)

    def _check_any(self) -> None:
        """Raises the first error where no run succeeded and one or more failed."""
        failed = [one for one in self.missing.values() if not one.stopped]
        if failed and not self.contents:
            kind = getattr(errors, failed[0].kind, None)
            raise (kind if isinstance(kind, type) else errors.SecureFedGraphError)(failed[0].reason)
