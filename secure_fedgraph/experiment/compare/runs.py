"""One run of a point: what decides it, what an earlier call left of it, and running it."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import Refused
from secure_fedgraph.experiment.code_digest import of_code, of_rooms
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import (
    begin,
    check_can_start,
    execute,
    finish,
    run_result,
    versions,
    write_json,
)
from secure_fedgraph.experiment.schema.run import RunResult

KEY, RESULT, REFUSED = "key.json", "result.json", "refused.json"
EVERY = 10
"""Rounds from one checkpoint to the next: saving two hundred clients' memories every round is slow."""
NEEDED = {"config", "accuracy", "privacy", "metric", "bytes", "seconds"}
"""What a result must hold to make a row; a run without it is incomplete, and is made again."""


def run_key(experiment: Experiment) -> str:
    """A digest of everything that decides a run: its configuration with the seed, the code, and versions."""
    decides = {
        "config": experiment.model_dump(mode="json"),
        "training": experiment.make_algorithm().settings.model_dump(mode="json"),
        "algorithm": of_code(algorithm_named(experiment.algorithm)),
        "of_others": [of_code(function) for function in experiment.of_others],
        "silos": experiment.digest_of_silos,
        "code": of_rooms(),
        "versions": versions(),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:20]


def readable(path: Path, root: Path | None = None) -> dict[str, Any] | None:
    """A JSON object; None where none is there, or it is torn, or a link stands in its place."""
    try:
        value = json.loads(files.read(path, root=root))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def kept(folder: Path, key: str) -> dict[str, Any] | None:
    """The result or refusal that an earlier call left for exactly this run; None where there is none."""
    root = _root(folder)
    if (readable(folder / KEY, root) or {}).get("key") != key:
        return None
    result = readable(folder / RESULT, root) or readable(folder / REFUSED, root)
    with suppress(ValidationError, OverflowError):  # what is damaged is made again
        if result is not None and isinstance(result.get("reason"), str):
            return result
        if result is not None and RunResult.model_validate(result).privacy and result.keys() >= NEEDED:
            return result
    return None


def _root(folder: Path) -> Path:
    """The comparison's own folder, above ``runs/POINT/seed-N``: below it no link is followed."""
    return folder.parents[2]


def check_point_can_start(config: dict[str, Any]) -> None:
    """Finds what is wrong with a point before anything runs. A refusal is no error: the row reports it.

    Raises:
        BadInput: as the run would.
    """
    with suppress(Refused), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there is to say of data was said before
        check_can_start(Experiment(**config))


def run_point(config: dict[str, Any], folder: Path, key: str | None = None) -> float:
    """Makes one run, unless it is finished. It is called in a process of its own.

    A run that was stopped resumes from its last checkpoint; one that adds noise starts again. Files of
    another configuration, code or version are removed from the folder.

    Args:
        key: of the run; by default made of the configuration.

    Returns:
        Seconds that it took.
    """
    experiment, started, cpu = Experiment(**config), time.perf_counter(), time.process_time()
    key = key or run_key(experiment)
    if kept(folder, key) is not None:
        return 0.0
    # A run with noise that is killed inside a round has paid for that round, and a budget that is planned to
    # the last round has no room to pay twice; nor can the same noise be drawn again. So the run starts again,
    # and writes no checkpoints. Where its ledger is shared with others, what it paid stays paid.
    shared = experiment.ledger is not None
    one_go = experiment.adds_noise and not shared
    checkpoint_every = experiment.checkpoint_every if shared else EVERY
    kind = algorithm_named(experiment.algorithm)
    # a comparison shows the last round's score, and every owner's own model scores all test data
    alone = kind.alone == kind.name
    evaluate_every = experiment.rounds or kind.rounds if alone else experiment.evaluate_every
    changed = {"checkpoint_every": checkpoint_every, "evaluate_every": evaluate_every}
    if one_go or (readable(folder / KEY, _root(folder)) or {}).get("key") != key:
        files.remove_folder(folder, _root(folder))
    write_json(folder / KEY, {"key": key}, _root(folder))
    checked = list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left in plaintext is a column of the table
        try:
            run = execute(
                experiment.model_copy(update=changed),
                None if one_go and experiment.transcript != "full" else folder,
                checkpoints=not one_go,
                on_form=checked.append,  # after all checks, before the first message
                on_start=lambda: begin(folder, experiment, [experiment.seed], "compare"),
            )
            result = {**run_result(run, experiment), "cpu": round(time.process_time() - cpu, 3)}
        except Refused as error:
            if checked:  # it has sent something: that it stopped there is no protection
                raise
            write_json(folder / REFUSED, {"reason": str(error), "class": type(error).__name__})
            return time.perf_counter() - started
    write_json(folder / RESULT, result)
    finish(folder, experiment.ledger)
    return time.perf_counter() - started
