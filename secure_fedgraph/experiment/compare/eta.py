"""Predicts how long the rest of a comparison takes, from its runs so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean

from secure_fedgraph.experiment.compare.points import Point


@dataclass(frozen=True)
class Job:
    """A point's run with one seed, or all attacks on it.

    Args:
        seed: None for the attacks.
    """

    point: Point
    seed: int | None

    @property
    def name(self) -> str:
        """The name that is shown."""
        return f"{self.point.name}, {'attacks' if self.seed is None else f'seed {self.seed}'}"

    @property
    def attacks(self) -> bool:
        """Whether the job is the attacks on a point."""
        return self.seed is None


@dataclass
class Remaining:
    """The seconds that jobs took, and predictions for those that are left.

    Args:
        workers: how many run side by side.
    """

    workers: int
    took: list[tuple[Job, float]] = field(default_factory=list)
    _since: dict[Job, float] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def started(self, job: Job) -> None:
        """A job is on its way from now on."""
        self._since[job] = time.monotonic()

    def ended(self, job: Job, seconds: float | None) -> None:
        """A job has ended; ``seconds`` is None where they do not predict others."""
        self._since.pop(job, None)
        self._seen.add(job.point.algorithm)
        if seconds is not None:
            self.took.append((job, seconds))

    def of(self, job: Job) -> float | None:
        """The predicted seconds of a job: from its point's jobs, else its algorithm's, else any."""
        groupings: tuple[Callable[[Job], object], ...] = (
            lambda j: (j.point.name, j.attacks),
            lambda j: (j.point.algorithm, j.point.policy, j.attacks),
            lambda j: (j.point.algorithm, j.attacks),
            lambda j: j.point.algorithm,
            lambda j: None,
        )
        for grouping in groupings:
            mine = [seconds for other, seconds in self.took if grouping(other) == grouping(job)]
            if mine:
                return fmean(mine)
        return None

    def left(self, waiting: Iterable[Job]) -> float | None:
        """Seconds until everything has ended; None before anything has."""
        if not self.took:
            return None
        now = time.monotonic()
        running = [max(0.0, (self.of(job) or 0.0) - (now - since)) for job, since in self._since.items()]
        waiting_seconds = [self.of(job) or 0.0 for job in waiting]
        return max([sum(running + waiting_seconds) / self.workers, *running, *waiting_seconds])

    def knows(self, jobs: Iterable[Job]) -> bool:
        """Whether a run of each of these jobs' algorithms has ended."""
        return bool(self.took) and {job.point.algorithm for job in jobs} <= self._seen
