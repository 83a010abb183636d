"""sfg.compare in a script: with one worker it starts no process, and with more it says what scripts need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import secure_fedgraph as sfg

ROOT = Path(__file__).resolve().parents[2]
UNGUARDED = """
import secure_fedgraph as sfg
experiment = sfg.Experiment(data="synthetic-citation", algorithm="fedavg", rounds=1,
                            dataset={{"nodes": 60, "features": 16}}, training={{"hidden": [8, 4]}})
print(len(sfg.compare(experiment, "out", policies=["masked"], workers={workers})))
"""


def script(folder: Path, workers: int) -> subprocess.CompletedProcess[str]:
    path = folder / "mine.py"
    path.write_text(UNGUARDED.format(workers=workers))
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_with_one_worker_a_script_needs_no_guard(tmp_path: Path) -> None:
    ended = script(tmp_path, 1)
    assert (ended.returncode, ended.stdout) == (0, "3\n") and "Traceback" not in ended.stderr, ended.stderr


def test_with_more_it_is_told_of_the_guard(tmp_path: Path) -> None:
    ended = script(tmp_path, 2)
    assert "BadInput: compare()" in ended.stderr and "`if __name__ == '__main__':`" in ended.stderr
    assert "bootstrapping phase" not in ended.stderr


def test_with_one_worker_a_refused_point_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "secure_fedgraph.comparison.Pool", lambda workers: pytest.fail("a process was started")
    )
    asked = sfg.Experiment(
        data="synthetic-citation", algorithm="fedavg", rounds=1, clients=2,
        dataset={"nodes": 60, "features": 16}, training={"hidden": [8, 4]},
    )  # fmt: skip
    rows = {row["policy"]: row for row in sfg.compare(asked, tmp_path, policies=["sealed", "masked"])}
    assert rows["masked"]["accuracy"] and "sealed protects peers only" in str(rows["sealed"])
