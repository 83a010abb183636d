"""The page of speed has the figures that are kept."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_race_left() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "race.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
