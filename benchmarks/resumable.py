"""A run that is not made again once it is finished, and goes on from its last round where it was stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from secure_fedgraph.backends.memory import keep_freed_memory
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import begin, execute, finish, run_result, write_json


def run_once(experiment: Experiment, folder: Path, name: str, command: str) -> None:
    """Leaves ``result.json`` in a folder of its own.

    Args:
        name: what is said while it runs, where somebody looks on.
        command: noted with the run.
    """
    if (folder / "result.json").is_file():
        return
    keep_freed_memory()

    def progress(row: dict[str, Any]) -> None:
        if sys.stderr.isatty():
            print(f"{name} seed {experiment.seed}: round {row['round']}", end="\r", file=sys.stderr)

    run = execute(
        experiment,
        folder,
        progress,
        checkpoints=True,
        on_start=lambda: begin(folder, experiment, [experiment.seed], command),
    )
    write_json(folder / "result.json", run_result(run, experiment))
    finish(folder)
