"""A run that is not made again once it is finished, and goes on from its last round where it was stopped."""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from secure_fedgraph.backends.memory import keep_freed_memory
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import begin, execute, finish, run_result, write_json

CPU = "cpu.json"
"""Processor seconds by round, of a run that no earlier call had begun."""


def run_once(experiment: Experiment, folder: Path, name: str, command: str) -> None:
    """Leaves ``result.json`` and ``cpu.json`` in a folder of its own.

    The first of the seconds are also of what comes before the first scored round, the others of a round and
    its scores. A run that goes on from a checkpoint leaves none.

    Args:
        name: what is said while it runs, where somebody looks on.
        command: noted with the run.
    """
    if (folder / "result.json").is_file():
        return
    keep_freed_memory()
    begun_before, marks = (folder / "checkpoint").exists(), list[float]()

    def progress(row: dict[str, Any]) -> None:
        marks.append(time.process_time())
        if sys.stderr.isatty():
            print(f"{name} seed {experiment.seed}: round {row['round']}", end="\r", file=sys.stderr)

    run = execute(
        experiment,
        folder,
        progress,
        checkpoints=True,
        on_start=lambda: begin(folder, experiment, [experiment.seed], command),
        on_form=lambda _: marks.append(time.process_time()),  # before the first message
    )
    if not begun_before:
        write_json(folder / CPU, {"rounds": [end - start for start, end in pairwise(marks)]})
    write_json(folder / "result.json", run_result(run, experiment))
    finish(folder)
