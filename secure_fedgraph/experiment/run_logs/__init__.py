"""Where a run's scores go besides its folder: MLflow or TensorBoard, both optional extras, off by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from secure_fedgraph.errors import BadInput, unknown_name
from secure_fedgraph.experiment.config import Experiment

KINDS = ("mlflow", "tensorboard")


class Log(Protocol):
    """One run's log."""

    def round(self, row: Mapping[str, Any]) -> None:
        """A round's scores."""

    def result(self, result: Mapping[str, Any]) -> None:
        """The run's result: last scores, epsilons, bytes, seconds."""

    def close(self, whole: bool) -> None:
        """The end; ``whole`` where nothing failed."""


class Nowhere:
    """No log."""

    def round(self, row: Mapping[str, Any]) -> None:
        """Nothing."""

    def result(self, result: Mapping[str, Any]) -> None:
        """Nothing."""

    def close(self, whole: bool) -> None:
        """Nothing."""


@contextmanager
def logged(experiment: Experiment, name: str) -> Iterator[Log]:
    """The log that an experiment asks for, closed at the end.

    Args:
        name: of the run.

    Raises:
        BadInput: for a log of another kind, without a place, or whose package is not installed.
    """
    log = _opened(experiment, name)
    whole = False
    try:
        yield log
        whole = True
    finally:
        log.close(whole)


def check_log(experiment: Experiment) -> None:
    """Checks that the log that an experiment asks for can be opened, without opening it.

    Raises:
        BadInput: as :func:`logged`.
    """
    _make(experiment)


def _opened(experiment: Experiment, name: str) -> Log:
    make, where = _make(experiment)
    return make(where, name, flat(experiment.model_dump(mode="json")))


def _make(experiment: Experiment) -> tuple[Callable[[str, str, Mapping[str, Any]], Log], str]:
    """What opens a log, and where."""
    if experiment.logging is None:
        return lambda where, name, config: Nowhere(), ""
    kind, _, where = experiment.logging.partition(":")
    if kind not in KINDS:
        raise unknown_name("log", kind, KINDS)
    if not where:
        raise BadInput(f"logging = {experiment.logging!r} names no place: give {kind}:WHERE")
    try:
        if kind == "mlflow":
            from secure_fedgraph.experiment.run_logs.mlflow_log import MlflowLog

            return MlflowLog, where
        from secure_fedgraph.experiment.run_logs.tensorboard_log import TensorBoardLog

        return TensorBoardLog, where
    except ImportError:
        raise BadInput(
            f"logging = {experiment.logging!r} needs {kind}: pip install 'secure-fedgraph[{kind}]'"
        ) from None


def scores(row: Mapping[str, Any]) -> dict[str, float]:
    """A round's numbers by name.

    >>> scores({"round": 1, "loss": None, "accuracy": {"global": 0.5}})
    {'accuracy/global': 0.5}
    """
    found = {f"accuracy/{key}": value for key, value in row["accuracy"].items()}
    found["loss"] = row.get("loss")
    return {key: float(value) for key, value in found.items() if isinstance(value, int | float)}


def totals(result: Mapping[str, Any]) -> dict[str, float]:
    """A result's numbers by name; an epsilon that nothing bounds is left out."""
    found: dict[str, Any] = {f"bytes/{key}": value for key, value in result["bytes"].items()}
    found["seconds"] = result["seconds"]
    for unit, entry in result["privacy"].items():
        found |= {f"epsilon/{unit}/{reader}": value for reader, value in entry["readers"].items()}
    return {key: float(value) for key, value in found.items() if isinstance(value, int | float)}


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A configuration with dotted keys.

    >>> flat({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found
