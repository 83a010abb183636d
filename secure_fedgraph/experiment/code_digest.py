"""Digests of code, so that results of one version are not taken for those of another."""

from __future__ import annotations

import hashlib
import inspect
import sysconfig
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
MAKE_NO_RESULTS = ("report", "attacks", "audits")
"""Folders of this package whose code makes pages or audits of results, and no results."""


@lru_cache(maxsize=8)
def of_rooms(*rooms: Path) -> str:
    """The digest of all modules below some folders, except those that make no results.

    Args:
        rooms: folders of packages; by default this package's.
    """
    modules = ((room, path) for room in rooms or (PACKAGE,) for path in room.rglob("*.py"))
    return _of(
        path
        for room, path in modules
        if room != PACKAGE or path.relative_to(room).parts[0] not in MAKE_NO_RESULTS
    )


def of_code(kind: type[Any] | Callable[..., Any], *known: Path) -> str:
    """The digest of the files that define a class and its bases, or a function; and of a user's files beside.

    All that a user's module could import from its own folder counts, imported or not: the set of loaded
    modules changes while runs go on, and the runs' keys must not change with it.

    Args:
        known: folders that are not the user's, besides this package's.
    """
    rooms = (PACKAGE, *known)
    files: set[Path] = set()
    for base in kind.__mro__ if isinstance(kind, type) else (inspect.unwrap(kind),):
        with suppress(TypeError, OSError):  # defined in a notebook or in C
            files.add(Path(inspect.getsourcefile(base) or "").resolve())
    files = {path for path in files if path.is_file()}
    for folder in {path.parent for path in files if not _is_installed(path, rooms)}:
        packages = (init.parent for init in folder.glob("*/__init__.py") if not _is_installed(init, rooms))
        files |= {path for package in packages for path in package.rglob("*.py")} | set(folder.glob("*.py"))
    return _of(files) if files else kind.__qualname__


def _is_installed(path: Path, rooms: Iterable[Path]) -> bool:
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    return "site-packages" in path.parts or any(room in path.parents for room in (stdlib, *rooms))


def _of(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted((path.name, _of_file(path)) for path in files):  # wherever they are installed
        digest.update(f"{name}\n{content}".encode())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=4096)
def _of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
