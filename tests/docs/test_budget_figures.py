"""The table of algorithms made for budgets holds what the kept file makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_figure_stands_in_the_table_that_no_file_holds() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "budget_figures.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
