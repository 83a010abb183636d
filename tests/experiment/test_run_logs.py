"""Logs of runs in MLflow and TensorBoard: what is written, off by default, packages that are not there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from secure_fedgraph.cli.main import main

SMALL = ["run", "--data", "synthetic-citation", "--set=dataset.nodes=90", "--set=dataset.features=16"]
SMALL += ["--set=training.hidden=[8,4]", "--rounds", "2", "--policy", "plaintext", "--quiet", "--out", "out"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fake_mlflow(notes: list[tuple[Any, ...]]) -> ModuleType:
    module = ModuleType("mlflow")

    def noted(name: str) -> Any:
        return lambda *args, **kwargs: notes.append((name, args, kwargs))

    for name in (
        "set_tracking_uri",
        "set_experiment",
        "start_run",
        "log_params",
        "log_metrics",
        "log_dict",
        "end_run",
    ):
        setattr(module, name, noted(name))
    return module


def test_mlflow_gets_parameters_rounds_and_the_result(monkeypatch: pytest.MonkeyPatch):
    notes: list[tuple[Any, ...]] = []
    monkeypatch.setitem(sys.modules, "mlflow", fake_mlflow(notes))
    done = CliRunner().invoke(main, [*SMALL, "--log", "mlflow:file:///tmp/ml"])
    assert done.exit_code == 0, done.output
    result = json.loads(Path("out/result.json").read_text())
    by_name = {
        name: [(a, k) for n, a, k in notes if n == name] for name in dict.fromkeys(n for n, _, _ in notes)
    }
    assert by_name["set_tracking_uri"][0][0] == ("file:///tmp/ml",)
    assert by_name["log_params"][0][0][0]["dataset.nodes"] == 90
    steps = [(a[0]["accuracy/global"], k["step"]) for a, k in by_name["log_metrics"] if "step" in k]
    assert steps == [(row["accuracy"]["global"], row["round"]) for row in result["rounds"]]
    totals = by_name["log_metrics"][-1][0][0]
    assert totals["bytes/up"] == result["bytes"]["up"] and "epsilon/client/server" not in totals  # unbounded
    assert by_name["log_dict"][0][0][1] == "result.json"
    assert by_name["end_run"] == [(("FINISHED",), {})]


def test_a_run_that_fails_ends_its_log_as_failed(monkeypatch: pytest.MonkeyPatch):
    notes: list[tuple[Any, ...]] = []
    monkeypatch.setitem(sys.modules, "mlflow", fake_mlflow(notes))
    failing = [*SMALL, "--log", "mlflow:x", "--clients", "1", "--policy", "masked"]
    assert CliRunner().invoke(main, failing).exit_code == 3
    assert notes[-1] == ("end_run", ("FAILED",), {})


def test_tensorboard_gets_a_step_a_round(monkeypatch: pytest.MonkeyPatch):
    written: list[tuple[Any, ...]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            written.append(("folder", folder))

        def add_text(self, name: str, text: str) -> None:
            written.append((name, text))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("close",))

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    done = CliRunner().invoke(main, [*SMALL, "--set", "logging=tensorboard:boards"])
    assert done.exit_code == 0, done.output
    result = json.loads(Path("out/result.json").read_text())
    assert written[0] == ("folder", "boards/out") and written[-1] == ("close",)
    assert [w[1:] for w in written if w[0] == "accuracy/global"] == [
        (row["accuracy"]["global"], row["round"]) for row in result["rounds"]
    ]
    assert ("seconds", result["seconds"], 2) in written


def test_nothing_is_logged_by_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert CliRunner().invoke(main, SMALL).exit_code == 0


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("mlflow:file:///tmp/x", "needs mlflow: pip install 'secure-fedgraph[mlflow]'"),
        ("tensorboard:boards", "needs tensorboard: pip install 'secure-fedgraph[tensorboard]'"),
        ("tensorbord:boards", "did you mean 'tensorboard'"),
        ("mlflow", "names no place: give mlflow:WHERE"),
    ],
)
def test_a_log_that_cannot_be(monkeypatch: pytest.MonkeyPatch, log: str, words: str):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    done = CliRunner().invoke(main, [*SMALL, "--log", log])
    assert done.exit_code == 2 and words in done.output, done.output
