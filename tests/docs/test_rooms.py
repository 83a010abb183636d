"""The page of the architecture holds the tree that the code prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_holds_the_tree_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "docs" / "rooms.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.rstrip() in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
