"""compare() in Python: what the command of that name does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from secure_fedgraph.audits.grid.pool import Pool
from secure_fedgraph.errors import BadInput
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
        BadInput: for a name that is unknown, or an ``out`` that holds something else.
    """
    out, seeds = Path(out), list(seeds)
    if not seeds:
        raise BadInput("seeds is empty: give one seed or more, such as (0, 1, 2)")
    named = list(algorithms) or [experiment.algorithm]
    chosen = points_side_by_side.points(
        experiment, named, list(policies) or [experiment.policy], list(epsilons)
    )
    points_side_by_side.make_all(chosen)
    points_side_by_side.check_folder(out, experiment, chosen, seeds)
    out.mkdir(parents=True, exist_ok=True)
    with Pool(workers) as pool:
        return points_side_by_side.compare(chosen, seeds, out, pool, workers)
