"""What benchmarks print, and pages of the docs with a part that one of them writes from kept results."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

END = "<!-- end -->"


def with_part(text: str, begin: str, lines: Iterable[str]) -> str:
    """A page whose lines between the mark ``begin`` and the next end mark are replaced."""
    head, rest = text.split(begin, 1)
    written = "\n".join(lines)
    return f"{head}{begin}\n{written}\n{END}{rest.split(END, 1)[1]}"


def write_or_check(page: Path, text: str, check: bool) -> None:
    """Writes a page, or ends with status 1 where the page has another text."""
    if check:
        sys.exit(f"{page} is out of date" if text != page.read_text(encoding="utf-8") else 0)
    page.write_text(text, encoding="utf-8")


def write_part(page: Path, begin: str, lines: Iterable[str], check: bool) -> None:
    """The same of one part of a page."""
    write_or_check(page, with_part(page.read_text(encoding="utf-8"), begin, lines), check)


def keep(path: Path, kept: Any) -> None:
    """Writes kept results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def options(doc: str | None, rows: bool = True, page: bool = False) -> argparse.ArgumentParser:
    """A parser of a script's options: ``--json`` where it prints rows, ``--check`` where it writes a page."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rows:
        parser.add_argument("--json", action="store_true", help="one JSON object with rows")
    if page:
        parser.add_argument("--check", action="store_true", help="status 1 where the page has other figures")
    return parser


def line(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def short(score: float) -> str:
    """``.123``"""
    return f"{score:.3f}".removeprefix("0")


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table's lines."""
    return [line(*cells) for cells in (heads, ["---"] * len(heads), *rows)]


def show(rows: Sequence[Mapping[str, Any]], as_json: bool, keys: Sequence[str] = ()) -> None:
    """Prints rows: as one JSON object, or as a table with these columns, or with all that any row has."""
    if as_json:
        print(json.dumps({"rows": rows}, indent=1))
        return
    heads = list(keys or dict.fromkeys(key for row in rows for key in row))
    print("\n".join(markdown(heads, ([_cell(row.get(key)) for key in heads] for row in rows))))


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "; ".join(map(_cell, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
