"""``--device``: what it takes, what it refuses before anything is written, and where a run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from command_line import call
from pretended_gpu import pretended_gpu

from secure_fedgraph.cli import running
from secure_fedgraph.experiment import results
from secure_fedgraph.experiment.results import execute

SMALL = ["--data", "synthetic-citation", "--set", "dataset.nodes=60", "--set", "dataset.features=16",
         "--rounds", "1"]  # fmt: skip
WIDTHS = ["--set", "training.hidden=[8,8]"]


def no_data(*_: object) -> None:
    pytest.fail("data were read, which may take long, before the device was looked at")


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert all(word in result.stderr for word in words), result.stderr
    assert not Path("out").exists()


@pytest.mark.parametrize("command", ["run", "audit", "compare"])
def test_what_is_no_device_is_refused(command: str) -> None:
    refused(call(command, *SMALL, "--device", "gpu", "--out", "out"), "device = 'gpu'", "'cpu' or 'cuda'")


@pytest.mark.parametrize("command", ["run", "audit", "compare"])
def test_a_gpu_that_is_not_there_is_refused(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(results, "make_federation", no_data)
    monkeypatch.setattr("multiprocessing.context.SpawnContext.Process", no_data)
    refused(call(command, *SMALL, "--device", "cuda", "--out", "out"), "device = 'cuda': torch", "use cpu")


@pytest.mark.parametrize("command", ["run", "audit", "compare"])
def test_an_algorithm_that_cannot_is_refused_by_name(command: str) -> None:
    with pretended_gpu():
        result = call(command, *SMALL, "--algorithm", "fedgcn", "--device", "cuda", "--out", "out")
    refused(result, "device = 'cuda'", "fedgcn trains and predicts on cpu only")


def test_a_run_there_says_so_and_has_the_scores_of_the_cpu() -> None:
    assert call("run", *SMALL, *WIDTHS, "--policy", "masked", "--out", "cpu", "--quiet").exit_code == 0
    with pretended_gpu() as gpu:
        done = call("run", *SMALL, *WIDTHS, "--policy", "masked", "--device", "cuda", "--out", "out")
    assert done.exit_code == 0 and "training and scoring on cuda" in done.output
    here, there = (json.loads((Path(name) / "result.json").read_text()) for name in ("cpu", "out"))
    assert gpu.ran["aten::_fused_adam_"] and there["config"]["device"] == "cuda"
    assert (here["accuracy"], here["bytes"]) == (there["accuracy"], there["bytes"])


def test_a_result_of_a_gpu_is_read_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended_gpu():
        kept = ["--set", "transcript=full", "--policy", "plaintext"]
        assert call("run", *SMALL, *WIDTHS, *kept, "--device", "cuda", "--out", "out").exit_code == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert call("report", "out").exit_code == 0
    assert call("export", "out", "--out", "model.pt").exit_code == 0
    audited = call("audit", "out", "--attack", "a4")
    assert audited.exit_code == 0, audited.output


def test_a_finished_run_takes_no_device() -> None:
    assert call("run", *SMALL, *WIDTHS, "--policy", "masked", "--out", "out").exit_code == 0
    result = call("resume", "out", "--device", "cpu")
    assert result.exit_code == 2 and "trains no more" in result.stderr


def test_a_run_of_a_gpu_goes_on_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(one: Any, folder: Any, on_round: Any, **rest: Any) -> Any:
        def stop(row: dict[str, Any]) -> None:
            if row["round"] == 2:
                raise KeyboardInterrupt

        return execute(one, folder, on_round=stop, **rest)

    rounds = ["--policy", "masked", "--rounds", "3"]
    with pretended_gpu(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "execute", dying)
        assert call("run", *SMALL, *WIDTHS, *rounds, "--device", "cuda", "--out", "out").exit_code == 130
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "make_federation", no_data)
        stays = call("resume", "out")
    assert stays.exit_code == 2 and "device = 'cuda': torch" in stays.stderr
    goes_on = call("resume", "out", "--device", "cpu")
    assert goes_on.exit_code == 0, goes_on.output
    assert json.loads((Path("out") / "result.json").read_text())["config"]["device"] == "cpu"
