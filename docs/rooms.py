"""Prints the tree of the code: every folder, and what its docstring says it is.

    python docs/rooms.py [--modules]

``docs/architecture.md`` holds what this prints without a flag, between two comments; a test compares them.
A new module changes nothing there, a new folder does.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("secure_fedgraph", "attacks", "audits")


def rooms(top: Path, with_modules: bool) -> Iterator[str]:
    """A folder's line, the lines of its modules where they are wanted, and those of the folders in it."""
    modules = [path for path in sorted(top.glob("*.py")) if path.name != "__init__.py"]
    depth = len(top.relative_to(ROOT).parts) - 1
    name = "  " * depth + f"{top.name}/"
    count = f"{len(modules):2} modules  " if with_modules else ""
    yield f"{name:24} {count}{_first_sentence(top / '__init__.py')}"
    for path in modules if with_modules else ():
        yield f"{'  ' * (depth + 1) + path.name:35}  {_first_sentence(path)}"
    for folder in sorted(path.parent for path in top.glob("*/__init__.py") if not path.parent.is_symlink()):
        yield from rooms(folder, with_modules)


def tree(with_modules: bool = False) -> str:
    """The lines of all folders."""
    return "\n".join(line for top in TOPS for line in rooms(ROOT / top, with_modules))


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n", 1)[0]


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--modules", action="store_true", help="also the modules of each folder, and how many")
    print(tree(asked.parse_args().modules))
