"""A run in MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlflow

from secure_fedgraph.experiment.run_logs.log import scores, totals

EXPERIMENT = "secure-fedgraph"


class MlflowLog:
    """Parameters, a step a round, and the result as a file.

    Args:
        uri: the tracking URI: a server, or a folder as ``file:///...``.
        name: of the run.
        config: dotted keys.
    """

    def __init__(self, uri: str, name: str, config: Mapping[str, Any]) -> None:
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment(EXPERIMENT)
        mlflow.start_run(run_name=name)
        mlflow.log_params(dict(config))

    def round(self, row: Mapping[str, Any]) -> None:
        """One step."""
        mlflow.log_metrics(scores(row), step=int(row["round"]))

    def result(self, result: Mapping[str, Any]) -> None:
        """Totals, and the whole ``result.json``."""
        mlflow.log_metrics(totals(result))
        mlflow.log_dict(dict(result), "result.json")

    def close(self, whole: bool) -> None:
        """Ends the run."""
        mlflow.end_run("FINISHED" if whole else "FAILED")
