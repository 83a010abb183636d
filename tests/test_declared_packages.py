"""Whatever the package imports is declared: a fresh install has it, or an extra brings it."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OWN = {"secure_fedgraph", "attacks", "audits"}
TOOLS = {"test", "dev", "docs"}
"""Extras of people who work on the package."""


def imported() -> Iterator[tuple[str, Path]]:
    """Top-level names of other packages, and where each is imported."""
    for room in OWN:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                for name in names:
                    if (top := name.partition(".")[0]) not in OWN | sys.stdlib_module_names:
                        yield top, path


def required_by(name: str) -> Iterator[str]:
    """What comes along with a package, whatever its extras."""
    with suppress(PackageNotFoundError):
        for text in requires(name) or ():
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                yield canonicalize_name(one.name)


def test_every_import_is_of_a_declared_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: listed for name, listed in project["optional-dependencies"].items() if name not in TOOLS}
    lists = [project["dependencies"], *extras.values()]
    declared = {canonicalize_name(Requirement(one).name) for listed in lists for one in listed}
    declared |= {one for name in declared for one in required_by(name)}
    brought_by = packages_distributions()
    missing = {
        name: path.relative_to(ROOT).as_posix()
        for name, path in imported()
        if name in brought_by and declared.isdisjoint(canonicalize_name(one) for one in brought_by[name])
    }
    assert missing == {}
