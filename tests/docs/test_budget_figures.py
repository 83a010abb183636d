"""The tables of budgets and of their audits hold what the kept files make of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("script", ["budget_figures.py", "families.py", "form_audits.py"])
def test_no_figure_stands_in_the_table_that_no_file_holds(script: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
