"""What the runs of a grid will cost, and in which order they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from secure_fedgraph.audits.grid.planned_runs import PlannedRun
from secure_fedgraph.report import text

PLAIN = "plaintext"
DAY = 86_400.0


def most_informative_first(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """The runs in their order, the most informative first.

    Attacks on unprotected runs come first: without them an attack that reads nothing shows nothing. Then come
    the policies that should stop them, which also show what is left; then the attacks' controls, unprotected
    and then under the policies; then further seeds. Algorithms take turns.
    """
    listed, turns = list(runs), dict[tuple[int, str], int]()
    seeds = list(dict.fromkeys(planned.chosen.seed for planned in listed))

    def place(planned: PlannedRun) -> tuple[int, int]:
        rank = 2 * (not planned.configured) + (planned.chosen.policy != PLAIN)
        rank += 4 * seeds.index(planned.chosen.seed)
        turn = turns[rank, planned.chosen.algorithm] = turns.get((rank, planned.chosen.algorithm), 0) + 1
        return rank, turn

    places = {id(planned): place(planned) for planned in listed}
    return sorted(listed, key=lambda planned: places[id(planned)])


def estimate(left: int, took: Sequence[float], workers: int) -> dict[str, Any]:
    """The estimate as ``audit.json`` has it, with a sentence.

    Args:
        left: how many runs.
        took: the seconds of those that have ended.
        workers: processes.
    """
    seconds = left * fmean(took or [0.0]) / workers
    told = f"{left} runs, about {text.seconds(seconds)} on {workers} process{'es' * (workers > 1)}"
    if seconds > DAY:
        told += ": with --budget-minutes 60 only the most telling run, for an hour"
    return {"runs": left, "seconds": round(seconds, 1), "workers": workers, "sentence": told}
