"""Runs a comparison: checks all points before any work, makes every run once, and gives each point a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from secure_fedgraph.arguments import several, several_names
from secure_fedgraph.core.errors import BadInput, Refused, check_number, check_whole, wrong_type
from secure_fedgraph.experiment.compare.points import ALONE, Point, points
from secure_fedgraph.experiment.compare.runs import (
    KEY,
    check_point_can_start,
    kept,
    readable,
    run_key,
    run_point,
)
from secure_fedgraph.experiment.compare.summary import RAN, beside_links, gains, row_of
from secure_fedgraph.experiment.compare.without_graph import added
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.pool import Failed, Tasks
from secure_fedgraph.experiment.results import read_json, write_json

Task = TypeVar("Task")
OTHERS = {"audit.json": "an audit", "result.json": "a run", "cells": "an audit that did not finish"}
ELSEWHERE = ("algorithm", "policy", "epsilon", "seed")
"""Keys of the configuration that points and seeds set."""
Leaks = Callable[[dict[str, Any]], dict[str, Any]]
"""Attacks on a point's run as configured: ``leak`` and ``leaks`` of its row."""


@dataclass(frozen=True)
class Job:
    """A point's run with one seed; or all attacks on it, where the seed is None."""

    point: Point
    seed: int | None

    @property
    def name(self) -> str:
        """The name that is shown."""
        return f"{self.point.name}, {'attacks' if self.seed is None else f'seed {self.seed}'}"


def checked_points(
    experiment: object, algorithms: object, policies: object, epsilons: object, workers: object
) -> list[Point]:
    """The points of a comparison, after a check of all that they are made of.

    Args:
        experiment, algorithms, policies, epsilons, workers: as
            :func:`secure_fedgraph.comparison.compare`'s, of whatever type a caller gave.

    Raises:
        BadInput: for what is unknown, of another type or out of range, and for a setting that a point's
            algorithm or policy does not take.
    """
    if not isinstance(experiment, Experiment):
        raise wrong_type("experiment", experiment, "give an Experiment")
    named = several_names("algorithms", algorithms, "fedsage", empty=True) or [experiment.algorithm]
    under = several_names("policies", policies, "masked", empty=True) or [experiment.policy]
    budgets = several("epsilons", epsilons, "give budgets as a list, such as [1, 8]", empty=True)
    for epsilon in budgets:
        check_number("one of epsilons", epsilon)
        if not epsilon > 0:
            raise BadInput(f"epsilon = {epsilon} is no budget: give positive numbers or inf")
    check_whole("workers", workers, 1)
    chosen = points(experiment, named, under, [float(epsilon) for epsilon in budgets])
    for point in chosen:
        with suppress(Refused):  # a refusal is no mistake: the point's row says it
            made = point.experiment(0)
            made.make_algorithm()
            made.make_policy()
    return chosen


def is_begun(out: Path) -> bool:
    """Whether an earlier call began runs in a folder."""
    return any(out.glob(f"runs/*/seed-*/{KEY}"))


def check_folder(out: Path, base: Experiment, chosen: Sequence[Point], seeds: Sequence[int]) -> None:
    """Checks that nothing is replaced that is not part of this comparison; more points or seeds may come in.

    Raises:
        BadInput: where the folder holds another kind's result, or a comparison of something else.
    """
    for name, kind in OTHERS.items():
        if (out / name).exists():
            raise BadInput(
                f"{out} already holds {name} of {kind}, whose page a comparison would replace: give another "
                "--out, or --overwrite"
            )
    if not (out / "compare.json").exists():
        return
    earlier, now = read_json(out / "compare.json", "compare"), base.model_dump(mode="json")
    before = earlier.get("config") or {}
    keys = [k for k in {**before, **now} if k not in ELSEWHERE and before.get(k) != now.get(k)]
    names = [row.get("name") for row in earlier.get("points") or ()]
    left = [name for name in names if name not in {point.name for point in chosen}]
    left += [f"seed {seed}" for seed in earlier.get("seeds") or () if seed not in seeds]
    if keys or left:
        differs = f"its {keys[0]} is another" if keys else f"its {left[0]} would be left out"
        raise BadInput(
            f"{out} already holds compare.json of another comparison ({differs}): give another --out, or "
            "--overwrite"
        )


def ended(pool: Tasks, waiting: list[Task], start: Callable[[Task], None]) -> Iterator[tuple[Any, Any]]:
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


def check(
    chosen: Sequence[Point], seed: int, pool: Tasks, progress: Callable[[str], None] = lambda text: None
) -> None:
    """Finds what is wrong with any point before work starts: settings, data that are too small for them.

    Raises:
        BadInput: naming the point, as its run would.
    """

    def start(point: Point) -> None:
        pool.start(point.name, check_point_can_start, point.experiment(seed).model_dump(mode="json"))

    wrong = dict[str, str]()
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
    pool: Tasks,
    progress: Callable[[str], None] = lambda text: None,
    leaks: Leaks | None = None,
    beside: Mapping[str, Point | str] | None = None,
) -> list[dict[str, Any]]:
    """Runs what is not finished, and gives every point's row.

    A run of an earlier call is used again where its configuration, code and versions are the same. Where a
    run fails, or its process dies, its row says so, and the other runs go on.

    Args:
        progress: called with the name of each job that ended.
        leaks: attacks on each point, on its first seed.
        beside: name of a point -> its budget without a graph, which is run too, or why there is none.
    """
    beside = beside or {}
    others = added(chosen, beside)
    jobs = [Job(point, seed) for seed in seeds for point in (*chosen, *others)]
    jobs += [Job(point, None) for point in chosen] if leaks is not None else []
    configs = {job: job.point.experiment(seeds[0] if job.seed is None else job.seed) for job in jobs}
    keys = {job: f"{run_key(one)}{'' if job.seed is not None else leaks}" for job, one in configs.items()}
    made, failed, waiting = dict[Job, dict[str, Any]](), dict[Job, Failed](), list[Job]()

    def look(job: Job) -> bool:
        if job.seed is not None:
            found = kept(job.point.run_folder(out, job.seed), keys[job])
        else:
            found = readable(job.point.folder(out) / "leaks.json", out)
            found = found if found is not None and found.get("key") == keys[job] else None
        made.update({} if found is None else {job: found})
        return found is not None

    def start(job: Job) -> None:
        config = configs[job].model_dump(mode="json")
        if job.seed is not None:
            folder = job.point.run_folder(out, job.seed)
            pool.start(job, run_point, config, folder, keys[job], of=configs[job], at=folder)
        else:
            path = job.point.folder(out) / "leaks.json"
            pool.start(job, _attack, leaks, config, keys[job], path, of=configs[job])

    for job in jobs:
        if look(job):
            progress(job.name)
        else:
            waiting.append(job)
    for job, result in ended(pool, waiting, start):
        if isinstance(result, Failed):
            failed[job] = result
        elif not look(job):
            failed[job] = Failed("it ended and left nothing")
        progress(job.name)

    def row(point: Point) -> dict[str, Any]:
        of_seeds = {seed: Job(point, seed) for seed in seeds}
        found = {seed: made[job] for seed, job in of_seeds.items() if job in made}
        why = {seed: failed[job] for seed, job in of_seeds.items() if job in failed}
        told = row_of(point, found, why, made.get(Job(point, None)))
        broken = failed.get(Job(point, None))
        return told if broken is None else {**told, "leak_failed": broken.reason}

    rows = [row(point) for point in chosen]
    by_name = {one["name"]: one for one in (*rows, *map(row, others))}
    alone = next((r for r in rows if r["kind"] == ALONE and r["outcome"] == RAN), None)
    for one in rows:
        one |= gains(one, alone)
        if one["name"] in beside:
            reference = beside[one["name"]]
            one |= beside_links(by_name[reference.name] if isinstance(reference, Point) else reference)
    return rows


def _attack(leaks: Leaks, config: dict[str, Any], key: str, path: Path) -> float:
    started = time.perf_counter()
    write_json(path, {"key": key, **leaks(config)}, path.parents[2])  # below the comparison's own folder
    return time.perf_counter() - started
