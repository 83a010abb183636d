"""Runs the suite, and again a part of what a stranger's file says of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithms.plugins import is_own
from secure_fedgraph.core.errors import BadInput, Refused, SecureFedGraphError
from secure_fedgraph.experiment.bench.suite import Part, Suite
from secure_fedgraph.experiment.compare import Point, checked_points, compare
from secure_fedgraph.experiment.compare.runner import Leaks, ended
from secure_fedgraph.experiment.compare.runs import RESULT, readable, run_point
from secure_fedgraph.experiment.compare.summary import REFUSED, score_of
from secure_fedgraph.experiment.config import ON_SUMS, Experiment
from secure_fedgraph.experiment.pool import Failed, Tasks
from secure_fedgraph.experiment.results import check_can_start, make_federation
from secure_fedgraph.experiment.schema.bench import BenchResult, Row

ROUNDING = 1e-6
"""How far a score of a run without noise may be from its first, where versions are the same."""
ALONE = 0.2
"""How far what owners score alone on one seed may be from a row's mean over its seeds."""
SHARE = 10
"""One run in so many is made again."""


def points_of(
    part: Part, base: Experiment, algorithms: Sequence[str]
) -> tuple[list[Point], list[dict[str, Any]]]:
    """The points of a part, without owners alone: what these score stands in every row.

    A task's own algorithms run under its policy; others under the first of it and of noise on sums that they
    can keep its budgets under.

    Returns:
        The points; and a row for each algorithm that cannot run on these data, with the reason.
    """
    chosen, left_out = list[Point](), list[dict[str, Any]]()
    for name in algorithms:
        why: BadInput | Refused | None = None
        for policy in dict.fromkeys((part.of.policy, *(() if name in part.of.algorithms else (ON_SUMS,)))):
            try:
                found = checked_points(base, [name], [policy], part.epsilons, 1)
                mine = [point for point in found if point.algorithm == name]
                if name not in part.of.algorithms:
                    with suppress(Refused):  # its row says so
                        check_can_start(mine[-1].experiment(0))
            except (BadInput, Refused) as error:
                why = why or error
            else:
                chosen += mine
                break
        else:
            of = {"kind": "left out", "algorithm": name, "policy": part.of.policy, "unit": part.of.unit}
            told = {"outcome": REFUSED, "reason": str(why), "class": type(why).__name__}
            left_out.append({**of, "name": name, "epsilon": "inf", **told})
    return chosen, left_out


def run_part(
    part: Part,
    algorithms: Sequence[str],
    out: Path,
    pool: Tasks,
    progress: Callable[[str], None],
    leaks_on: Callable[[Sequence[Point]], Leaks | None],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Makes the runs of a task with one partition that an earlier call did not finish.

    Args:
        leaks_on: the attacks on points.

    Returns:
        What there is to say of its data, or why it was left out; and its rows.
    """
    of = {"task": part.task, "partition": part.partition}
    try:
        base = part.experiment(out)
        facts = make_federation(base).facts
    except BadInput as error:
        return {**of, "title": part.of.title, "reason": str(error)}, []
    chosen, rows = points_of(part, base, algorithms)
    if chosen:
        rows += compare(chosen, part.seeds, part.folder(out), pool, progress, leaks_on(chosen))
    digest = base.digest_of_silos if base.silos else facts["digest"]
    told = {"title": part.of.title, "data": facts["data"], "source": facts["source"], "digest": digest}
    return of | told, [of | row for row in rows]


Run = tuple[Row, int]
"""A row, and the seed of one of its runs."""


def drawn(rows: Sequence[Row], seed: int | None) -> list[Run]:
    """A random tenth of all runs, at least one.

    Args:
        seed: draws the same ones again; None for the operating system's randomness.

    Raises:
        BadInput: where no row ran.
    """
    runs = [(row, one.seed) for row in rows for one in row.each]
    if not runs:
        raise BadInput("no row of the file ran, so there is nothing to run again")
    draw = random.SystemRandom() if seed is None else random.Random(seed)
    return draw.sample(runs, math.ceil(len(runs) / SHARE))


def check_known(held: BenchResult, suite: Suite, typed: Sequence[str]) -> None:
    """That a file is of this suite, and code of its own is trusted by name.

    Raises:
        BadInput: for another suite, and for own algorithms that the user did not type.
    """
    if held.suite != suite.digest:
        raise BadInput(
            f"the file is of suite {held.suite[:40]!r} and this version has {suite.digest}: use its version"
        )
    own = {row.algorithm for row in held.points if is_own(row.algorithm)}
    if unknown := sorted(own - set(typed)):
        raise BadInput(f"its rows are of {', '.join(unknown)[:200]!r}, whose code runs only if you name it: "
                       "add --algorithm")  # fmt: skip


def run_again(
    runs: Sequence[Run],
    held: BenchResult,
    suite: Suite,
    out: Path,
    pool: Tasks,
    progress: Callable[[str], None],
    same_versions: bool,
) -> Iterator[tuple[str, str, bool]]:
    """Makes runs again by the suite's own settings, since a file says nothing that is opened or run here.

    Args:
        same_versions: whether these are of the same packages and code.

    Returns:
        For each run its name, what came out in words, and whether that is near enough to the file's.

    Raises:
        BadInput: for a row that the suite does not have.
    """
    parts = {(part.task, part.partition): part for part in suite.parts(quick=held.quick)}
    jobs: dict[str, tuple[Row, int, Experiment, Path]] = {}
    for row, seed in runs:
        name = f"{row.task}, {row.partition}, {row.name}, seed {seed}"
        part = parts.get((row.task, row.partition))
        found = list[Point]()
        if part is not None and seed in part.seeds:
            found, _ = points_of(part, part.experiment(out), [row.algorithm])
        said = (row.name, row.algorithm, row.policy, row.unit, row.budget)
        asked = {(one.name, one.algorithm, one.policy, one.config["unit"], one.epsilon): one for one in found}
        point = asked.get(said)
        if part is None or point is None:
            raise BadInput(f"{name[:200]!r} is no run of the suite")
        folder = point.run_folder(part.folder(out), seed)
        jobs[name] = (row, seed, point.experiment(seed), folder)

    def start(name: str) -> None:
        _, _, experiment, folder = jobs[name]
        config = experiment.model_dump(mode="json")
        pool.start(name, run_point, config, folder, of=experiment, at=folder)

    for name, ending in ended(pool, list(jobs), start):
        row, seed, experiment, folder = jobs[name]
        result = readable(folder / RESULT, out)
        progress(name)
        if isinstance(ending, Failed):  # which says nothing about the file
            raise SecureFedGraphError(f"{name} could not be run again here: {ending.reason}")
        if result is None:
            yield name, "it was refused", False
            continue
        exact = same_versions and not experiment.adds_noise
        yield name, *_compared(row, seed, result, ROUNDING if exact else suite.tasks[row.task].tolerance)


def _compared(row: Row, seed: int, result: Mapping[str, Any], most: float) -> tuple[str, bool]:
    said = next(one.accuracy for one in row.each if one.seed == seed)
    first, again = (score_of({"accuracy": one, "measure": row.measure}) for one in (said, result["accuracy"]))
    claims = result["privacy"]
    alone = result["baselines"]["alone"]["metrics"].items()
    near = abs(first - again) <= most and all(
        math.isclose(
            float(one), float(claims.get(unit, {}).get("readers", {}).get(reader, "inf")), rel_tol=0.01
        )
        for unit, readers in row.readers.items()
        for reader, one in readers.items()
    )
    paid = claims.get(row.unit, {}).get("epsilon", "inf")
    near &= math.isclose(float(row.spent), float(paid), rel_tol=0.01)
    near &= all(abs(row.alone.get(key, value) - value) <= ALONE for key, value in alone)
    told = f"{first:.4f} in the file, {again:.4f} again (at most {most:g} apart)"
    return f"{told}; epsilon {row.spent} and {paid}", near
