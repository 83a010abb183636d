"""What the app does on the server: a federation's run over a given grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.federation_file import read_federation
from secure_fedgraph.deployment.flower.given_grid import FlowerGrid, GivenGrid
from secure_fedgraph.deployment.flower.pinned import check_flower
from secure_fedgraph.deployment.serving import Serving, serve
from secure_fedgraph.deployment.silos import PATIENCE, Pace

DEFAULTS: dict[str, str | int | float] = {
    "federation": "",
    "out": "",
    "start-with": 0,
    "wait": 600.0,
    "patience": PATIENCE,
}
"""What ``--run-config`` may name, as the app's pyproject.toml has it."""
PACE = Pace(greeting=60.0, back=20.0, ask_after=math.inf, gone_after=math.inf)
"""A SuperNode takes one message at a time, so greetings wait behind a question; Flower itself reports a node
that is gone (after about 45 s) and an app that cannot reach its silo (at once)."""


def run_over(
    grid: FlowerGrid, config: Mapping[str, Any], on_event: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Runs a federation over a grid, and writes its results.

    Args:
        grid: as Flower hands it to a ServerApp.
        config: the run's configuration; the keys of :data:`DEFAULTS`.
        on_event: called with a line for people.

    Returns:
        The ``secure-fedgraph/run/1`` object that was written.

    Raises:
        BadInput: where another release of Flower is installed, a key is missing or of another type, or the
            file or the folder cannot be used.
        Lost, Refused: as :func:`~secure_fedgraph.deployment.serving.serve`.
    """
    check_flower()
    file, out = (_path(config, key) for key in ("federation", "out"))
    wait, patience = (_number(config, key) for key in ("wait", "patience"))
    how = Serving(start_with=int(_number(config, "start-with")), wait=wait, patience=patience, pace=PACE)
    approved = read_federation(file)
    post = GivenGrid(grid, approved, patience + 60, on_event)
    on_event(f"{approved.federation.name}: digest {approved.digest}")

    def each(row: dict[str, Any]) -> None:
        figures = {key: value for key, value in row["accuracy"].items() if isinstance(value, float)}
        on_event(
            f"round {row['round']}: " + ", ".join(f"{key} {value:.3f}" for key, value in figures.items())
        )

    result = serve(approved, post, out, "flwr run", how, each, on_event)
    on_event(f"{out / 'result.json'}: written; for a page: secure-fedgraph report {out}")
    return result


def _path(config: Mapping[str, Any], key: str) -> Path:
    value = config.get(key, DEFAULTS[key])
    if not isinstance(value, str) or not value:
        raise BadInput(f"{key} = {value!r}: give a path, as in --run-config '{key}=\"/srv/…\"'")
    path = Path(value)
    if not path.is_absolute():  # a ServerApp's working folder is Flower's
        raise BadInput(f"{key} = {value!r}: give an absolute path")
    return path


def _number(config: Mapping[str, Any], key: str) -> float:
    value = config.get(key, DEFAULTS[key])
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise BadInput(f"{key} = {value!r}: give a number that is not negative")
    return float(value)
