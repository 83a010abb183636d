"""Predicts how long the rest of a comparison takes, from its runs so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeVar

from secure_fedgraph.experiment.compare.points import Point

Value = TypeVar("Value")
Traffic = tuple[float, float]
"""Bytes up and down."""
ENCRYPTED = ("homomorphic", "strictest")
"""Policies whose messages may be much larger than what they carry."""


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


def kind_of(job: Job) -> tuple[str, bool]:
    """Jobs of one kind foretell each other: of one algorithm, encrypted or not."""
    return job.point.algorithm, job.point.policy in ENCRYPTED


@dataclass
class Remaining:
    """The seconds that jobs took and the bytes that they sent, and predictions for those that are left.

    Args:
        workers: how many run side by side.
    """

    workers: int
    took: list[tuple[Job, float]] = field(default_factory=list)
    sent: list[tuple[Job, Traffic]] = field(default_factory=list)
    _since: dict[Job, float] = field(default_factory=dict)
    _seen: set[object] = field(default_factory=set)

    def started(self, job: Job) -> None:
        """A job is on its way from now on."""
        self._since[job] = time.monotonic()

    def ended(self, job: Job, seconds: float | None, sent: Traffic | None = None) -> None:
        """A job has ended; ``seconds`` is None where they do not predict others, ``sent`` of attacks."""
        self._since.pop(job, None)
        self._seen.add(kind_of(job))
        if sent is not None:
            self.sent.append((job, sent))
        if seconds is not None:
            self.took.append((job, seconds))

    def of(self, job: Job) -> float | None:
        """The predicted seconds of a job: from its point's jobs, else its algorithm's, else any."""
        mine = _nearest(self.took, job)
        return fmean(mine) if mine else None

    def traffic(self, jobs: Iterable[Job]) -> Traffic:
        """Predicted bytes up and down of all runs: those that ended, and these. Attacks send nothing."""
        every = [traffic for _, traffic in self.sent]
        for job in jobs:
            if not job.attacks and (mine := _nearest(self.sent, job)):
                every.append((fmean(up for up, _ in mine), fmean(down for _, down in mine)))
        return sum(up for up, _ in every), sum(down for _, down in every)

    def left(self, waiting: Iterable[Job]) -> float | None:
        """Seconds until everything has ended; None before anything has."""
        if not self.took:
            return None
        now = time.monotonic()
        running = [max(0.0, (self.of(job) or 0.0) - (now - since)) for job, since in self._since.items()]
        waiting_seconds = [self.of(job) or 0.0 for job in waiting]
        return max([sum(running + waiting_seconds) / self.workers, *running, *waiting_seconds])

    def knows(self, jobs: Iterable[Job]) -> bool:
        """Whether a job of each of these jobs' kinds has ended."""
        return bool(self.took) and set(map(kind_of, jobs)) <= self._seen


def _nearest(known: Iterable[tuple[Job, Value]], job: Job) -> list[Value]:
    """What is known of the jobs most like this one: of its point, else its algorithm, else any."""
    groupings: tuple[Callable[[Job], object], ...] = (
        lambda j: (j.point.name, j.attacks),
        lambda j: (j.point.algorithm, j.point.policy, j.attacks),
        lambda j: (*kind_of(j), j.attacks),
        lambda j: (j.point.algorithm, j.attacks),
        lambda j: j.point.algorithm,
        lambda j: None,
    )
    rows = list(known)
    for grouping in groupings:
        if mine := [value for other, value in rows if grouping(other) == grouping(job)]:
            return mine
    return []
