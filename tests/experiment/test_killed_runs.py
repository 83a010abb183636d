"""kill -9 at random instants: whatever the instant, resume ends as a run that was left alone does."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import held

from secure_fedgraph.core.spending.ledger import read_ledger

SETTINGS = """run --algorithm fedsage+ --data synthetic-citation --policy masked --rounds 12 --seed 3
    --set dataset.nodes=120 --set dataset.features=16 --set training.hidden=[8,8] --set training.epochs=3
    --set training.generator_epochs=2 --set training.federated_epochs=4 --set training.exchange_batch=8
    --set training.minimum_batch=4 --set training.generator_hidden=[16,32] --set training.encoder=[8,8]
    --set training.hidden_share=0.3 --quiet"""
RUN = SETTINGS.split()
CHARGED = ("generator", "feedback", "update")


def start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "secure_fedgraph.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)


def begun(folder: Path) -> bool:
    return (folder / "checkpoint" / "experiment.json").exists()


def kill_within(process: subprocess.Popen[bytes], folder: Path, seconds: float, again: bool) -> bool:
    """Kills a run that many seconds after it touched its folder; False where it ended before."""
    before = (folder / "checkpoint" / "experiment.json").stat().st_mtime_ns if again else 0
    while process.poll() is None:
        path = folder / "checkpoint" / "experiment.json"
        if path.exists() and path.stat().st_mtime_ns != before:  # it is about to send its first message
            break
        time.sleep(0.002)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), said.decode()
    return process.returncode != 0


def finish(*arguments: object) -> None:
    process = start(*arguments)
    _, said = process.communicate(timeout=2400)
    assert process.returncode == 0, said.decode()


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = held(folder / "result.json")
    return found


def killed_and_resumed(tmp_path: Path, kills: int, *more: str) -> None:
    finish(*RUN, *more, "--out", tmp_path / "whole")
    whole = result(tmp_path / "whole")
    lasted = whole["seconds"]
    instants, done, number = random.Random(20), 0, 0
    while done < kills:
        folder, number = tmp_path / str(number), number + 1
        left = lasted
        while done < kills and not (folder / "result.json").exists():
            again = begun(folder)
            command = ("resume", folder, "--quiet") if again else (*RUN, *more, "--out", folder)
            done += kill_within(start(*command), folder, instants.uniform(0, left), again)
            left = max(0.1, left * 0.7)
        if not (folder / "result.json").exists():
            finish(*(("resume", folder, "--quiet") if begun(folder) else (*RUN, *more, "--out", folder)))
        check(folder, whole)
    print(f"{done} kills in {number} runs of {lasted:.1f} s")


def check(folder: Path, whole: dict[str, Any]) -> None:
    found = result(folder)
    assert found["weights"] == whole["weights"]
    assert found["accuracy"] == whole["accuracy"]
    assert found["rounds"] == whole["rounds"]
    charged = [(c.client, c.channel, c.exchange) for c in read_ledger(folder / "ledger.jsonl")]
    assert len(set(charged)) == len(charged)  # numbers went on: nothing was sent under one twice
    notes = map(json.loads, (folder / "transcript" / "notes.jsonl").read_text().splitlines())
    sent = {
        (s["sender"], s["channel"], s["exchange"])
        for s in notes
        if s["kind"] == "sent"
        and s["recipient"] == "server"
        and s["channel"] in CHARGED
        and s["step"] == "answer"
    }
    assert sent <= set(charged)
    assert len(sent) >= 3 * 4 + 6 * 4 + 3 * 12
    finish("resume", folder)  # says that it is finished
    assert not list((folder / "checkpoint").glob("clients/*"))  # memories are not left lying about


@pytest.mark.timeout(240)
def test_two_random_instants(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_random_instants(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 20)
