"""Prints the tree of the code: its rooms, and what their docstrings say they are.

    python docs/rooms.py [--modules | --count]

``docs/architecture.md`` holds what this prints without a flag, between two comments; a test compares them.
A new room changes it, a module or a folder inside a room does not: ``--modules`` prints these too.
``--count`` prints lines of code instead: no docstring, comment or blank line.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("secure_fedgraph", "attacks", "audits")


def rooms(top: Path, with_modules: bool) -> Iterator[str]:
    """A folder's line; those of the rooms in it, or, with modules, of all that is in it."""
    modules = [path for path in sorted(top.glob("*.py")) if path.name != "__init__.py"]
    depth = len(top.relative_to(ROOT).parts) - 1
    name = "  " * depth + f"{top.name}/"
    count = f"{len(modules):2} modules  " if with_modules else ""
    yield f"{name:24} {count}{_first_sentence(top / '__init__.py')}"
    for path in modules if with_modules else ():
        yield f"{'  ' * (depth + 1) + path.name:35}  {_first_sentence(path)}"
    inside = top.glob("*/__init__.py") if with_modules or depth < 1 else ()
    for folder in sorted(path.parent for path in inside if not path.parent.is_symlink()):
        yield from rooms(folder, with_modules)


def tree(with_modules: bool = False) -> str:
    """The lines of all folders."""
    return "\n".join(line for top in TOPS for line in rooms(ROOT / top, with_modules))


def lines_of_code(path: Path) -> int:
    """Lines of a module without docstrings (of constants too), comments and blank ones.

    Raises:
        SyntaxError: where it is no Python.
    """
    text = path.read_text(encoding="utf-8")
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if (
                isinstance(one, ast.Expr)
                and isinstance(one.value, ast.Constant)
                and isinstance(one.value.value, str)
            ):
                said |= set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    numbered = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and line.lstrip()[0] != "#" and at not in said for at, line in numbered)


def sizes() -> dict[str, int]:
    """Lines of code by room, largest first; then the sums that have a ceiling."""
    code: Counter[str] = Counter()
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).parts
            if not any((ROOT.joinpath(*parts[:depth])).is_symlink() for depth in range(1, len(parts))):
                depth = 3 if parts[1:3] == ("core", "carriers") else 2
                code["/".join(parts[:depth]) if top == "secure_fedgraph" else top] += lines_of_code(path)
    whole = {
        f"lines of {folder}": sum(
            len(path.read_text("utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")
        )
        for folder in ("tests", "benchmarks")
    }
    words = sum(len(path.read_text("utf-8").split()) for path in (ROOT / "docs").rglob("*.md"))
    changelog = (ROOT / "CHANGELOG.md").stat().st_size
    sums = {
        "all code": sum(code.values()),
        **whole,
        "words of pages": words,
        "bytes of the changelog": changelog,
    }
    return {**dict(code.most_common()), **sums}


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n", 1)[0]


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--modules", action="store_true", help="also the modules of each folder, and how many")
    asked.add_argument("--count", action="store_true", help="lines of code by room instead")
    given = asked.parse_args()
    print("\n".join(f"{n:7,}  {what}" for what, n in sizes().items()) if given.count else tree(given.modules))
