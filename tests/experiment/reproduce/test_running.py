"""Runs of a table: two calls at once make each run once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from secure_fedgraph.experiment.reproduce import running
from secure_fedgraph.experiment.reproduce.tables import Case

TINY = Case(
    "tiny",
    {
        "algorithm": "fedavg",
        "data": "synthetic-citation",
        "dataset": {"nodes": 60, "features": 4},
        "clients": 2,
        "rounds": 1,
        "training": {"hidden": [4, 4]},
    },
)


def test_a_run_that_another_call_makes_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    both = threading.Barrier(2)

    def counted(*given: Any) -> float:
        took = run_point(*given)
        begun.extend([1] if took else [])
        return took

    run_point = running.run_point
    monkeypatch.setattr(running, "run_point", counted)

    def call() -> None:
        both.wait()
        running._run(TINY, 0, tmp_path)

    calls = [threading.Thread(target=call) for _ in range(2)]
    for one in calls:
        one.start()
    for one in calls:
        one.join()
    folder = running.folder_of(TINY, 0, tmp_path)
    result = running.kept(folder, running.run_key(TINY, 0))
    assert len(begun) == 1 and result is not None
