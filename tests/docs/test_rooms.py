"""The page of the architecture holds the tree that the code prints, and nothing outgrows its ceiling."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("rooms", ROOT / "docs" / "rooms.py")
assert SPEC is not None
assert SPEC.loader is not None
rooms = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(rooms)
CEILINGS = {
    "secure_fedgraph/core": 4_080,
    "secure_fedgraph/core/carriers": 2_448,
    "all code": 53_705,
    "lines of tests": 65_508,
    "lines of benchmarks": 5_520,
    "words of pages": 61_485,
    "bytes of the changelog": 10_000,
}
"""What the house weighs at most; a change that needs more takes something else out, or says here why not."""


def test_the_page_holds_the_tree_of_the_code() -> None:
    assert rooms.tree(False).rstrip() in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_nothing_weighs_more() -> None:
    sizes = rooms.sizes()
    assert {what: sizes[what] for what, most in CEILINGS.items() if sizes[what] > most} == {}
