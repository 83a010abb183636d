"""The pages of speed have the figures that are kept."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("script", ["race.py", "devices.py"])
def test_the_page_is_what_was_measured(script: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
