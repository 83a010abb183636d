"""The leakage grid: algorithm x policy x attack x adversary x seed. A cell is refused, blind, or a score."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secure_fedgraph.attacks import Attack
from secure_fedgraph.audits.grid.attacked import attacked
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.audits.grid.choices import (
    AS_CONFIGURED,
    adversaries,
    readers,
    variants,
)
from secure_fedgraph.audits.grid.estimates import estimate, most_informative_first
from secure_fedgraph.audits.grid.options import checked_options
from secure_fedgraph.audits.grid.planned_runs import PlannedRun, read_cells, write_cells
from secure_fedgraph.core.errors import wrong_type
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.pool import Failed, Pool, Tasks, default_workers, tried

Progress = Callable[[str], None]
SMALL = 30.0
"""Seconds of work below which no process is worth starting."""
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
    probes: bool = False,
    pool: Tasks | None = None,
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
        say: called after the first run with an estimate of the others, where these take long.
        probes: whether each algorithm and its protections are called again on little data (first seed only).
        pool: where the runs are made, in place of this machine's processes.

    Raises:
        BadInput: before any work, for an option that is unknown, of another type or out of range.
    """
    started = time.monotonic()
    for name, function in (("progress", progress), ("say", say)):
        if not callable(function):
            raise wrong_type(name, function, "give a function of a text")
    experiments, names, chosen, numbers, folder, controls = checked_options(
        experiment, policies, attacks, seeds, out, adversary, controls, effort, workers, budget, probes,
    )  # fmt: skip
    wanted = planned_runs(experiments, names, chosen, numbers, adversary, controls, effort, probes)
    call = _GridRunner(wanted, folder, progress, workers, budget, say, started, pool)
    call.run()
    return call.audit(controls, effort)


def planned_runs(
    experiments: Sequence[Experiment],
    policies: Sequence[str],
    attacks: Sequence[type[Attack]],
    seeds: Sequence[int],
    adversary: str | None = None,
    controls: Collection[str] | None = None,
    effort: float | None = None,
    probes: bool = False,
) -> list[PlannedRun]:
    """The runs of a grid, in the order of its table.

    An attack whose channel an algorithm lacks is left out, where others of the attacks have theirs.
    """
    listed, who = [], adversaries(attacks, adversary)
    for one in experiments:
        mine = readers(one, attacks) or list(attacks) if len(experiments) > 1 else attacks
        for seed in seeds:
            for policy in policies:
                chosen = one.with_policy(policy).model_copy(update={"seed": seed})
                for variant in variants(chosen, mine, controls):
                    # probes depend on no seed, and controls are settings of what is attacked
                    probed = probes and variant.name == AS_CONFIGURED and seed == seeds[0]
                    listed.append(PlannedRun(chosen, variant, who, effort, probed=probed))
    return listed


def _earlier(planned: PlannedRun, out: Path | None) -> dict[str, Any] | None:
    planned.experiment.make_algorithm()
    return None if out is None else read_cells(out, planned)


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
    pool: Tasks | None = None
    contents: dict[int, dict[str, Any]] = field(default_factory=dict)
    missing: dict[int, Failed] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    estimate: dict[str, Any] | None = None

    @property
    def deadline(self) -> float | None:
        """When the budget ends, but for the page."""
        return self.budget and self.started + self.budget - min(RESERVE, self.budget / 10)

    def run(self) -> None:
        for planned in self.wanted:
            why_not = planned.variant.why_not
            earlier = Failed(why_not) if why_not else tried(_earlier, planned, self.out)
            if isinstance(earlier, Failed):  # a control whose settings do not go together
                self._take_or_note(planned, earlier)
            elif earlier is not None:
                self._take(planned, earlier)
        done = {*self.contents, *self.missing}
        todo = most_informative_first([planned for planned in self.wanted if id(planned) not in done])
        if self.pool is not None:
            self._side_by_side(self.pool, todo)
            todo = []
        alone, workers = self.workers == 1, self.workers or default_workers(len(todo))
        if self.budget is None and self.workers in (None, 1) and todo:
            self._run_here(todo.pop(0))  # its time shows whether processes are worth starting
            self.estimate = estimate(len(todo), self.seconds, workers)
            alone = alone or self.estimate["seconds"] * workers <= SMALL
            if self.estimate["seconds"] > SMALL:
                self.say(self.estimate["sentence"])
        if self.budget is None and alone:
            for planned in todo:
                self._run_here(planned)
        else:
            with Pool(workers) as pool:
                self._side_by_side(pool, todo)
        self._check_any()

    def audit(self, controls: Collection[str] | None, effort: float | None) -> Audit:
        """The cells in the order of the grid's table, and what was not run."""
        audited = Audit(controls=None if controls is None else tuple(controls), effort=effort)
        audited.estimate = self.estimate
        for planned in self.wanted:
            made = self.contents.get(id(planned))
            if made is None:
                why = self.missing[id(planned)]  # of a control it may be that its settings do not go together
                failed = why.unforeseen or (planned.configured and not why.stopped)
                audited.not_run += [
                    {**cell, "reason": why.reason, "failed": failed} for cell in planned.cells()
                ]
                continue
            for name in ("cells", "runs", "reconstructions", "conformance", "empirical"):
                getattr(audited, name).extend(made[name])
            audited.not_run += made.get("not_run", [])
        return audited

    def _run_here(self, planned: PlannedRun) -> None:
        self._take_or_note(planned, tried(attacked, planned, self.out))

    def _side_by_side(self, pool: Tasks, todo: list[PlannedRun]) -> None:
        waiting = list(todo)
        while waiting or pool.working:
            while waiting and pool.free and (self.deadline is None or time.monotonic() < self.deadline):
                planned = waiting.pop(0)
                at = self.out and self.out / planned.place
                pool.start(planned, attacked, planned, self.out, True, of=planned.experiment, at=at)
            if not pool.working:
                break
            for planned, made in pool.finished(self.deadline):
                self._take_or_note(planned, made)
        for planned in waiting:
            self.missing[id(planned)] = Failed("the time of the budget was over before its run", stopped=True)

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
        self.seconds.append(float(made["seconds"]))
        self.progress(planned.name)

    def _check_any(self) -> None:
        """Raises the first error where no run succeeded and one or more failed."""
        failed = [one for one in self.missing.values() if not one.stopped]
        if failed and not self.contents:
            raise failed[0].error()
