"""Where a run's scores go besides its folder: MLflow or TensorBoard, both optional extras, off by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment

EXPERIMENT = "secure-fedgraph"


class Log:
    """One run's log; this one is none.

    Args:
        where: a place of its kind.
        name: of the run.
        config: dotted keys.
    """

    module = ""
    """What has to be installed."""

    def __init__(self, where: str, name: str, config: Mapping[str, Any]) -> None:
        """Opens it."""

    def round(self, row: Mapping[str, Any]) -> None:
        """A round's scores."""

    def result(self, result: Mapping[str, Any]) -> None:
        """The run's result: last scores, epsilons, bytes, seconds."""

    def close(self, whole: bool) -> None:
        """The end; ``whole`` where nothing failed."""


class MlflowLog(Log):
    """Parameters, a step a round, and the result as a file; ``where`` is a server, or ``file:///...``."""

    module = "mlflow"

    def __init__(self, where: str, name: str, config: Mapping[str, Any]) -> None:
        self._mlflow: Any = import_module(self.module)
        self._mlflow.set_tracking_uri(where)
        self._mlflow.set_experiment(EXPERIMENT)
        self._mlflow.start_run(run_name=name)
        self._mlflow.log_params(dict(config))

    def round(self, row: Mapping[str, Any]) -> None:
        self._mlflow.log_metrics(scores(row), step=int(row["round"]))

    def result(self, result: Mapping[str, Any]) -> None:
        self._mlflow.log_metrics(totals(result))
        self._mlflow.log_dict(dict(result), "result.json")

    def close(self, whole: bool) -> None:
        self._mlflow.end_run("FINISHED" if whole else "FAILED")


class TensorBoardLog(Log):
    """A step a round, and the configuration as text; the run has a folder of its own in ``where``."""

    module = "torch.utils.tensorboard"

    def __init__(self, where: str, name: str, config: Mapping[str, Any]) -> None:
        self._writer: Any = import_module(self.module).SummaryWriter(str(Path(where) / name))
        self._writer.add_text("config", "\n".join(f"    {key} = {value}" for key, value in config.items()))

    def round(self, row: Mapping[str, Any]) -> None:
        self._add(scores(row), int(row["round"]))

    def result(self, result: Mapping[str, Any]) -> None:
        self._add(totals(result), len(result["rounds"]))

    def _add(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self, whole: bool) -> None:
        self._writer.close()


KINDS: Mapping[str, type[Log]] = {"mlflow": MlflowLog, "tensorboard": TensorBoardLog}


@contextmanager
def logged(experiment: Experiment, name: str) -> Iterator[Log]:
    """The log that an experiment asks for, closed at the end.

    Args:
        name: of the run.

    Raises:
        BadInput: for a log of another kind, without a place, or whose package is not installed.
    """
    kind, where = check_log(experiment)
    log, whole = kind(where, name, flat(experiment.model_dump(mode="json"))), False
    try:
        yield log
        whole = True
    finally:
        log.close(whole)


def check_log(experiment: Experiment) -> tuple[type[Log], str]:
    """The log that an experiment asks for, and where it is, without opening it.

    Raises:
        BadInput: as :func:`logged`.
    """
    if experiment.logging is None:
        return Log, ""
    kind, _, where = experiment.logging.partition(":")
    if kind not in KINDS:
        raise unknown_name("log", kind, KINDS)
    if not where:
        raise BadInput(f"logging = {experiment.logging!r} names no place: give {kind}:WHERE")
    try:
        import_module(KINDS[kind].module)
    except ImportError:
        raise BadInput(
            f"logging = {experiment.logging!r} needs {kind}: pip install 'secure-fedgraph[{kind}]'"
        ) from None
    return KINDS[kind], where


def scores(row: Mapping[str, Any]) -> dict[str, float]:
    """A round's numbers by name.

    >>> scores({"round": 1, "loss": None, "accuracy": {"global": 0.5}})
    {'accuracy/global': 0.5}
    """
    numbers = {f"accuracy/{key}": value for key, value in row["accuracy"].items()}
    numbers["loss"] = row.get("loss")
    return {key: float(value) for key, value in numbers.items() if isinstance(value, int | float)}


def totals(result: Mapping[str, Any]) -> dict[str, float]:
    """A result's numbers by name; an epsilon that nothing bounds is left out."""
    numbers: dict[str, Any] = {f"bytes/{key}": value for key, value in result["bytes"].items()}
    numbers["seconds"] = result["seconds"]
    for unit, entry in result["privacy"].items():
        numbers |= {f"epsilon/{unit}/{reader}": value for reader, value in entry["readers"].items()}
    return {key: float(value) for key, value in numbers.items() if isinstance(value, int | float)}


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A configuration with dotted keys.

    >>> flat({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    flattened: dict[str, Any] = {}
    for key, value in values.items():
        flattened |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return flattened
