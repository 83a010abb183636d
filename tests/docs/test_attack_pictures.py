"""The pictures of the attacks' pages are those of the runs that are kept, and say what the pages say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.scripts import script

ROOT = Path(__file__).resolve().parents[2]
KEPT = sorted((ROOT / "benchmarks/results/attack_pictures").glob("*.json"))
IMAGES = ROOT / "docs/images/attacks"
NO_PICTURES = {"all", "lies", "payoffs"}
"""A page of several surfaces, and those whose attacks guess nothing, or nothing but an order."""


@pytest.fixture(scope="module")
def drawn() -> Mapping[str, tuple[str, str]]:
    """The files and their words that the script makes of what is kept."""
    pictures = script("attack_pictures").pictures
    kept = (json.loads(path.read_text(encoding="utf-8")) for path in KEPT)
    return {name: made for one in kept for name, made in pictures(one).items()}


def words(text: str) -> list[str]:
    return re.findall(r"<(?:title|text)[^>]*>([^<]*)<", text)


def test_every_surface_has_pictures() -> None:
    pages = {path.stem for path in (ROOT / "docs/attacks").glob("*.md")} - NO_PICTURES
    assert {path.stem for path in KEPT} == pages


def test_the_pages_say_what_is_kept(drawn: Mapping[str, tuple[str, str]]) -> None:
    """Every picture stands with its words on its page, and no page has another between its marks."""
    for page in (path.stem for path in KEPT):
        text = (ROOT / f"docs/attacks/{page}.md").read_text(encoding="utf-8")
        told = text.split("<!-- pictures -->\n")[1].split("<!-- end -->")[0].splitlines()
        own = (f"{page}-stolen.svg", f"{page}-left.svg")
        assert told == [f"![{drawn[name][1]}](../images/attacks/{name})" for name in own]


def test_the_pictures_have_the_words_of_what_is_kept(drawn: Mapping[str, tuple[str, str]]) -> None:
    assert sorted(drawn) == sorted(path.name for path in IMAGES.glob("*.svg"))
    assert len(drawn) == 2 * len(KEPT)
    for name, (file, _) in drawn.items():
        assert words(file) == words((IMAGES / name).read_text(encoding="utf-8"))
