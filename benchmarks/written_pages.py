"""Pages of the docs with a part that a benchmark writes from kept results."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

END = "<!-- end -->"


def with_part(text: str, begin: str, lines: Iterable[str]) -> str:
    """A page whose lines between the mark ``begin`` and the next end mark are replaced."""
    head, rest = text.split(begin, 1)
    written = "\n".join(lines)
    return f"{head}{begin}\n{written}\n{END}{rest.split(END, 1)[1]}"


def write_or_check(page: Path, text: str, check: bool) -> None:
    """Writes a page, or ends with status 1 where the page has another text."""
    if check:
        sys.exit(text != page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
