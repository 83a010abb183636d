"""compare() in Python: what the command of that name does."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from secure_fedgraph.arguments import several_seeds
from secure_fedgraph.core.errors import BadInput, wrong_type
from secure_fedgraph.experiment import compare as points_side_by_side
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.pool import Here, Pool


def compare(
    experiment: Experiment,
    out: Path | str,
    algorithms: Iterable[str] = (),
    policies: Iterable[str] = (),
    epsilons: Iterable[float] = (),
    seeds: Sequence[int] = (0,),
    workers: int = 1,
    without_graph: bool = True,
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
        workers: how many processes; with one, the runs are made in this one. A script that asks for more is
            imported again by each of them: its call belongs under ``if __name__ == "__main__":``.
        without_graph: whether each budget's score without a graph, of a run of its own, stands in its row.

    Returns:
        One row a point, with the keys of a row of ``compare.json``.

    Raises:
        BadInput: before any run, for an option that is unknown, of another type or out of range, for a
            setting or data that do not fit a point, or an ``out`` that holds something else.
    """
    _check_not_imported_again()
    chosen = points_side_by_side.checked_points(experiment, algorithms, policies, epsilons, workers)
    if not isinstance(without_graph, bool):
        raise wrong_type("without_graph", without_graph, "give True or False")
    beside = points_side_by_side.references(chosen) if without_graph else {}
    seeds = several_seeds(seeds)
    if not isinstance(out, str | Path):
        raise wrong_type("out", out, "give a folder")
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise BadInput(f"out = {str(out)!r} is a file: give a folder")
    points_side_by_side.check_folder(out, experiment, chosen, seeds)
    with Pool(workers) if workers > 1 else nullcontext(Here()) as pool:
        points_side_by_side.check(points_side_by_side.unfinished(chosen, seeds, out), seeds[0], pool)
        out.mkdir(parents=True, exist_ok=True)
        return points_side_by_side.compare(chosen, seeds, out, pool, beside=beside)


def _check_not_imported_again() -> None:
    """Checks that this is no process that a comparison has started, and that is still importing the script.

    Raises:
        BadInput: where it is: the script's call is outside of its ``if __name__ == "__main__":``.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise BadInput(
            "compare() with 2 workers or more starts processes, and each of them imports this script again: "
            "put the call under `if __name__ == '__main__':`, or give workers=1"
        )
