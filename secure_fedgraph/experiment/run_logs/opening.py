"""Opening the log that an experiment asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.run_logs.log import Log, Nowhere, flat

KINDS = ("mlflow", "tensorboard")


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
