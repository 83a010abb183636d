"""The page of the architecture holds the tree that the code prints, and nothing outgrows its ceiling."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("rooms", ROOT / "docs" / "rooms.py")
assert SPEC is not None
assert SPEC.loader is not None
rooms = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(rooms)
CEILINGS = {
    "secure_fedgraph/core": 4_060,
    "secure_fedgraph/core/carriers": 2_270,
    "all code": 51_560,
    "lines of tests": 64_160,
    "lines of benchmarks": 5_500,
    "words of pages": 59_700,
    "bytes of the changelog": 10_000,
}
"""What the house weighs at most; a change that needs more takes something else out, or says here why not."""


def test_the_page_holds_the_tree_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "docs" / "rooms.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.rstrip() in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_nothing_weighs_more() -> None:
    sizes = rooms.sizes()
    assert {what: sizes[what] for what, most in CEILINGS.items() if sizes[what] > most} == {}
