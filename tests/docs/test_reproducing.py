"""The page of the papers' tables holds what the kept files make of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("script", ["reproduced.py", "readings.py", "by_round.py"])
def test_no_figure_stands_in_the_page_that_no_file_holds(script: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
