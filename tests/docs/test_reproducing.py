"""The page of the papers' tables holds what the kept files make of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_figure_stands_in_the_page_that_no_file_holds() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "reproduced.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
