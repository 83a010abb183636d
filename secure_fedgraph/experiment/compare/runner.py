"""Runs a comparison: checks all points before any work, makes every run once, and gives each point a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.experiment.compare.eta import Job, Remaining, Traffic, kind_of
from secure_fedgraph.experiment.compare.points import ALONE, Point
from secure_fedgraph.experiment.compare.runs import check_point_can_start, kept, readable, run_key, run_point
from secure_fedgraph.experiment.compare.summary import RAN, Failure, beside_links, gains, row_of
from secure_fedgraph.experiment.compare.without_graph import Reference, added
from secure_fedgraph.experiment.results import write_json

Task = TypeVar("Task")
Told = Callable[[str, float | None], None]
"""Called with a job that ended, and the seconds that all others still need, where that is known."""

Foresee = Callable[[int, float, Traffic], None]
"""Called with a number of jobs, seconds, and bytes up and down."""


class Pool(Protocol):
    """Processes that give each task's result, or a :class:`Failure`, also where the process died."""

    @property
    def free(self) -> bool:
        """Whether a task would be started at once."""
        ...

    @property
    def working(self) -> bool:
        """Whether a task is on its way."""
        ...

    def start(self, name: Any, work: Callable[..., Any], *arguments: Any) -> None:
        """Gives a task to a free process."""
        ...

    def finished(self) -> list[tuple[Any, Any]]:
        """Waits until tasks have ended: names with results or failures."""
        ...


class Leaks(Protocol):
    """Attacks on a point's run as configured."""

    def key(self, config: dict[str, Any]) -> str:
        """A digest of everything that decides their scores."""
        ...

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        """``leak`` and ``leaks`` of a row."""
        ...


def ended(pool: Pool, waiting: list[Task], start: Callable[[Task], None]) -> Iterator[tuple[Any, Any]]:
    """Starts tasks as processes are free, and gives the name and the result of each that ends.

    Args:
        waiting: what is not started yet; it gets shorter.
    """
    while waiting or pool.working:
        while waiting and pool.free:
            start(waiting.pop(0))
        yield from pool.finished()


def unfinished(chosen: Iterable[Point], seeds: Sequence[int], out: Path) -> list[Point]:
    """The points of which a run is still to be made."""
    return [
        point
        for point in chosen
        if any(kept(point.run_folder(out, s), run_key(point.experiment(s))) is None for s in seeds)
    ]


def make_all(chosen: Iterable[Point]) -> None:
    """Makes every point's algorithm and policy. A refusal is no mistake: the point's row says it.

    Raises:
        BadInput: for a name or a setting that is unknown or missing.
    """
    for point in chosen:
        with suppress(Refused):
            experiment = point.experiment(0)
            experiment.make_algorithm()
            experiment.make_policy()


def check(
    chosen: Sequence[Point], seed: int, pool: Pool, progress: Callable[[str], None] = lambda text: None
) -> None:
    """Finds what is wrong with any point before work starts: settings, data that are too small for them.

    Raises:
        BadInput: naming the point, as its run would.
    """
    wrong = dict[str, str]()

    def start(point: Point) -> None:
        pool.start(point.name, check_point_can_start, point.experiment(seed).model_dump(mode="json"))

    for name, failure in ended(pool, list(chosen), start):
        if failure is not None and failure.kind == BadInput.__name__:  # others: see its run
            wrong[name] = failure.reason
        progress(name)
    for point in chosen:
        if point.name in wrong:
            raise BadInput(f"{point.name}: {wrong[point.name]}")


def compare(
    chosen: Sequence[Point],
    seeds: Sequence[int],
    out: Path,
    pool: Pool,
    workers: int = 1,
    progress: Told = lambda text, left: None,
    foresee: Foresee = lambda jobs, seconds, traffic: None,
    leaks: Leaks | None = None,
    beside: Mapping[str, Reference] | None = None,
) -> list[dict[str, Any]]:
    """Runs what is not finished, and gives every point's row.

    A run of an earlier call is used again where its configuration, code and versions are the same. Where a
    run fails, or its process dies, its row says so, and the other runs go on.

    Args:
        workers: processes of the pool.
        foresee: called once with the number of jobs left, the seconds that they need, and the bytes up and
            down of all runs, as soon as a run of each algorithm has ended, encrypted and not.
        leaks: attacks on each point, on its first seed.
        beside: name of a point -> its budget without a graph, which its row tells of; it is run too.
    """
    beside = beside or {}
    others = added(chosen, beside)
    call = _Call(chosen, others, seeds, out, leaks)
    call.run(pool, Remaining(workers), progress, foresee)
    rows = [call.row(point) for point in chosen]
    by_name = {row["name"]: row for row in (*rows, *(call.row(point) for point in others))}
    alone = next((r for r in rows if r["kind"] == ALONE and r["outcome"] == RAN), None)
    for row in rows:
        row |= gains(row, alone)
        if row["name"] in beside:
            reference = beside[row["name"]]
            found = None if reference.point is None else by_name[reference.point.name]
            row |= beside_links(row, found, reference.reason)
    return rows


class _Call:
    """One call: its jobs, the results so far, and the failures."""

    def __init__(
        self,
        chosen: Sequence[Point],
        others: Sequence[Point],
        seeds: Sequence[int],
        out: Path,
        leaks: Leaks | None,
    ) -> None:
        self.seeds, self.out, self.leaks = seeds, out, leaks
        runs = [Job(point, seed) for seed in seeds for point in (*chosen, *others)]
        first = {kind_of(job): job for job in reversed(runs)}.values()  # their times predict others
        self.jobs = [*first, *(job for job in runs if job not in first)]
        self.jobs += [Job(point, None) for point in chosen] if leaks is not None else []
        self.keys = {job: self._key(job) for job in self.jobs}
        self.outcomes: dict[Job, dict[str, Any]] = {}
        self.failed: dict[Job, Failure] = {}

    def _key(self, job: Job) -> str:
        if job.seed is not None:
            return run_key(job.point.experiment(job.seed))
        return self.leaks.key(self._config(job)) if self.leaks is not None else ""

    def _config(self, job: Job) -> dict[str, Any]:
        seed = self.seeds[0] if job.seed is None else job.seed
        return job.point.experiment(seed).model_dump(mode="json")

    def _leak(self, job: Job) -> Path:
        return job.point.folder(self.out) / f"leak-{self.keys[job]}.json"

    def _kept(self, job: Job) -> dict[str, Any] | None:
        if job.seed is not None:
            return kept(job.point.run_folder(self.out, job.seed), self.keys[job])
        leak = readable(self._leak(job), self.out)
        return leak if leak is not None and set(leak) >= {"leak", "leaks"} else None

    def run(self, pool: Pool, remaining: Remaining, progress: Told, foresee: Foresee) -> None:
        """Every job that an earlier call did not finish."""
        waiting = []
        for job in self.jobs:
            if (outcome := self._kept(job)) is None:
                waiting.append(job)
            else:
                self.outcomes[job] = outcome
                progress(job.name, None)
        todo, foreseen = list(waiting), False

        def start(job: Job) -> None:
            remaining.started(job)
            self._start(pool, job)

        for job, outcome in ended(pool, waiting, start):
            remaining.ended(job, self._take(job, outcome), self._sent(job))
            left = remaining.left(waiting)
            if not foreseen and waiting and left is not None and remaining.knows(todo):
                foreseen = True
                foresee(len(waiting), left, remaining.traffic(j for j in todo if j not in self.outcomes))
            progress(job.name, left)

    def _start(self, pool: Pool, job: Job) -> None:
        if job.seed is not None:
            folder = job.point.run_folder(self.out, job.seed)
            pool.start(job, run_point, self._config(job), folder, self.keys[job])
        else:
            pool.start(job, _attack, self.leaks, self._config(job), self._leak(job))

    def _take(self, job: Job, made: Any) -> float | None:
        """Records a job's end. Returns its seconds, where they help to predict others."""
        if not isinstance(made, float):
            self.failed[job] = made
            return None
        outcome = self._kept(job)
        assert outcome is not None, f"{job.name} ended and left nothing"
        self.outcomes[job] = outcome
        return None if "reason" in outcome else made

    def _sent(self, job: Job) -> Traffic | None:
        """Bytes up and down of a run that ended."""
        sent = self.outcomes.get(job, {}).get("bytes")
        return (sent["up"], sent.get("down", 0)) if isinstance(sent, dict) else None

    def row(self, point: Point) -> dict[str, Any]:
        """A point's row, whatever came of it."""
        jobs = [Job(point, seed) for seed in self.seeds]
        outcomes = {
            job.seed: self.outcomes[job] for job in jobs if job in self.outcomes and job.seed is not None
        }
        failed = {job.seed: self.failed[job] for job in jobs if job in self.failed and job.seed is not None}
        attacks = Job(point, None)
        row = row_of(point, outcomes, failed, self.outcomes.get(attacks))
        if attacks in self.failed:
            row["leak_failed"] = self.failed[attacks].reason
        return row


def _attack(leaks: Leaks, config: dict[str, Any], path: Path) -> float:
    started = time.perf_counter()
    write_json(path, leaks(config), path.parents[2])  # below the comparison's own folder
    return time.perf_counter() - started
