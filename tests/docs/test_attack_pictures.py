"""The pictures of the attacks' pages are those of the runs that are kept, and say what the pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = sorted((ROOT / "benchmarks/results/attack_pictures").glob("*.json"))
IMAGES = ROOT / "docs/images/attacks"
NO_PICTURES = {"all", "payoffs"}
"""A page of several surfaces, and one whose attack guesses nothing but an order."""


def printed(*options: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks/attack_pictures.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.rstrip()


def words(path: Path) -> list[str]:
    return re.findall(r"<(?:title|text)[^>]*>([^<]*)<", path.read_text(encoding="utf-8"))


def test_every_surface_has_pictures() -> None:
    pages = {path.stem for path in (ROOT / "docs/attacks").glob("*.md")} - NO_PICTURES
    assert {path.stem for path in KEPT} == pages


def test_the_pages_say_what_is_kept() -> None:
    """Every line that is printed stands on one page, and no page has another between its marks."""
    told = [
        line
        for page in sorted(path.stem for path in KEPT)
        for line in (ROOT / f"docs/attacks/{page}.md")
        .read_text(encoding="utf-8")
        .split("<!-- pictures -->\n")[1]
        .split("<!-- end -->")[0]
        .splitlines()
    ]
    assert sorted(told) == sorted(printed("--text").splitlines())


def test_the_pictures_have_the_words_of_what_is_kept(tmp_path: Path) -> None:
    printed("--draw", "--images", str(tmp_path))
    made = sorted(tmp_path.glob("*.svg"))
    assert [path.name for path in made] == sorted(path.name for path in IMAGES.glob("*.svg"))
    assert len(made) == 2 * len(KEPT)
    for path in made:
        assert words(path) == words(IMAGES / path.name)
