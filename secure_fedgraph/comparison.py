"""compare() in Python: what the command of that name does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from secure_fedgraph.audits.grid.pool import Pool
from secure_fedgraph.errors import BadInput, several_seeds, wrong_type
from secure_fedgraph.experiment import compare as points_side_by_side
from secure_fedgraph.experiment.config import Experiment


def compare(
    experiment: Experiment,
    out: Path | str,
    algorithms: Iterable[str] = (),
    policies: Iterable[str] = (),
    epsilons: Iterable[float] = (),
    seeds: Sequence[int] = (0,),
    workers: int = 1,
) -> list[dict[str, Any]]:
    """Accuracy under privacy, side by side: algorithms x policies x budgets x seeds.

    Guarantees:
        - what is finished in ``out`` under the same configuration, code and versions is not run again;
        - a point that is refused or fails becomes a row with the reason, and stops no other point.

    Args:
        experiment: what every point shares.
        out: folder of the runs and of what is left to do.
        algorithms: by name; by default the experiment's own.
        policies: by name; by default the experiment's own.
        epsilons: budgets; by default none.
        seeds: one run a point and seed.
        workers: processes.

    Returns:
        One row a point, with the keys of a row of ``compare.json``.

    Raises:
        BadInput: before any run, for an option that is unknown, of another type or out of range, for a
            setting or data that do not fit a point, or an ``out`` that holds something else.
    """
    chosen = points_side_by_side.checked_points(experiment, algorithms, policies, epsilons, workers)
    seeds = several_seeds(seeds)
    if not isinstance(out, str | Path):
        raise wrong_type("out", out, "give a folder")
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise BadInput(f"out = {str(out)!r} is a file: give a folder")
    points_side_by_side.check_folder(out, experiment, chosen, seeds)
    with Pool(workers) as pool:
        points_side_by_side.check(points_side_by_side.unfinished(chosen, seeds, out), seeds[0], pool)
        out.mkdir(parents=True, exist_ok=True)
        return points_side_by_side.compare(chosen, seeds, out, pool, workers)
