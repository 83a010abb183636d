"""Runs that really log: MLflow and TensorBoard as installed, read back with their own readers."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from secure_fedgraph.cli.main import main

SMALL = ["run", "--data", "synthetic-citation", "--set=dataset.nodes=90", "--set=dataset.features=16"]
SMALL += ["--set=training.hidden=[8,4]", "--rounds", "2", "--policy", "plaintext", "--quiet", "--out", "out"]

# these packages warn of themselves, on import and in use
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def logged(place: str) -> dict[str, Any]:
    """The result of a run that logs there."""
    done = CliRunner().invoke(main, [*SMALL, "--log", place])
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(Path("out/result.json").read_text())
    return result


def test_mlflow_has_the_parameters_the_rounds_and_the_result(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("mlflow", reason="needs the extra mlflow")
        from mlflow.tracking import MlflowClient
    place = f"sqlite:///{tmp_path}/runs.db"
    result = logged(f"mlflow:{place}")
    client = MlflowClient(tracking_uri=place)
    experiments = [one.experiment_id for one in client.search_experiments()]
    (run,) = client.search_runs(experiments)
    assert run.info.status == "FINISHED"
    assert run.data.params["policy"] == "plaintext" and run.data.params["dataset.nodes"] == "90"
    rounds = client.get_metric_history(run.info.run_id, "accuracy/global")
    assert sorted((one.step, one.value) for one in rounds if one.step) == [
        (row["round"], pytest.approx(row["accuracy"]["global"])) for row in result["rounds"]
    ]
    assert run.data.metrics["bytes/up"] == result["bytes"]["up"]
    assert "result.json" in {one.path for one in client.list_artifacts(run.info.run_id)}


def test_tensorboard_has_a_step_a_round() -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = logged("tensorboard:boards")
    read = EventAccumulator("boards/out")
    read.Reload()
    scores = [(one.step, one.value) for one in read.Scalars("accuracy/global")]
    assert scores == [
        (row["round"], pytest.approx(row["accuracy"]["global"], rel=1e-6)) for row in result["rounds"]
    ]
