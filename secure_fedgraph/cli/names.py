"""What ``list`` prints. It is kept in a file, because making it imports torch, which takes seconds."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from secure_fedgraph import __version__
from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.silos.places import is_place
from secure_fedgraph.registry import points_of

KINDS = ("algorithms", "policies", "attacks", "datasets", "tables")
ONE = {"algorithms": "algorithm", "policies": "policy", "datasets": "dataset", "tables": "table"}
"""What one of a kind is called in messages."""
PACKAGE = Path(__file__).resolve().parents[1]
DATA = "SECURE_FEDGRAPH_DATA"
_LARGEST = 2**22
"""Bytes of a kept list."""
_DEPTH = 3
"""Of the folders that a data set's raw files stand in, under a data root."""


def listed(kind: str, say: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """The rows of one list.

    Args:
        kind: one of :data:`KINDS`.
        say: is given a sentence for each plugin that is not in the list because it cannot be used.

    Returns:
        What :mod:`~secure_fedgraph.cli.listing` makes. The kept file is used as long as the code, the
        plugins and the data folders are the same; otherwise the rows are made again. They are not kept
        while a plugin cannot be used: what it lacks may come from anywhere, and its warning is due each time.
    """
    cache = platformdirs.user_cache_path("secure-fedgraph")
    kept = cache / "lists" / f"{kind}-{_key(kind)}.json"
    with suppress(OSError, ValueError, RecursionError):
        as_kept: object = json.loads(files.read(kept, root=cache, most=_LARGEST))
        if isinstance(as_kept, list) and as_kept and all(isinstance(row, dict) for row in as_kept):
            return as_kept
    from secure_fedgraph.cli import listing

    rows = listing.LISTS[kind]()
    if left_out := listing.left_out(kind):
        if say is not None:
            for sentence in left_out:
                say(sentence)
        return rows
    with suppress(OSError, BadInput):  # a list that cannot be kept is made again
        kept.parent.mkdir(parents=True, exist_ok=True)
        files.write(kept, [json.dumps(rows).encode()], private=True, root=cache, sync=False)
    return rows


def check_names(kind: str, given: str) -> None:
    """Refuses a misspelt name before anything heavy is imported.

    Args:
        kind: a key of :data:`ONE`.
        given: names, separated by commas. A user's own class (``module:Class``) is not looked at, and
            neither is an entry point that cannot be used: importing it gives the reason.

    Raises:
        BadInput: for a name that nobody has; it names packages whose list of plugins is damaged.
    """
    if kind == "datasets" and is_place(given):
        return
    names = [name.strip() for name in given.split(",") if name.strip() and ":" not in name]
    if not names:
        return
    known = {str(row["name"]) for row in listed(kind)}
    points, damaged = points_of(f"secure_fedgraph.{kind}")
    registered = {name.lower() for name in known.union(point.name for point in points)}
    for name in names:
        if name.lower() not in registered:  # the configuration takes names in any case
            if kind == "datasets" and os.path.exists(name):
                raise BadInput(f"--data {name}: to read your own file or folder, write ./{name}")
            raise BadInput(" ".join([str(unknown_name(ONE[kind], name, known)), *damaged]))


def _key(kind: str) -> str:
    """Changes with what could change a list: this package's files, plugins, and the data folders."""
    seen = hashlib.sha256(f"{__version__} {sys.version} {sys.path} {os.environ.get(DATA)}".encode())
    plugins = list(_entry_points())
    for line in sorted(f"{point.group} {point.name} {point.value} {_version(point)}" for point in plugins):
        seen.update(line.encode())
    own = {path for folder in (PACKAGE, PACKAGE / "attacks") for path in folder.rglob("*.py")}
    for path in sorted(own.union(*map(_files, plugins))):
        with suppress(OSError):
            state = path.stat()
            seen.update(f"{path} {state.st_mtime_ns} {state.st_size}\n".encode())
    if kind == "datasets":
        for root in (os.environ.get(DATA), str(platformdirs.user_cache_path("secure-fedgraph") / "data")):
            for entry in sorted(_below(root, _DEPTH)):
                seen.update(entry.encode())
    return seen.hexdigest()[:24]


def _entry_points() -> Iterator[metadata.EntryPoint]:
    for kind in KINDS:
        yield from points_of(f"secure_fedgraph.{kind}")[0]


def _version(point: metadata.EntryPoint) -> str:
    with suppress(Exception):  # metadata may be damaged in any way
        if point.dist is not None:
            return f"{point.dist.name} {point.dist.version}"
    return ""


def _files(point: metadata.EntryPoint) -> set[Path]:
    """The files of a plugin: those that its package lists, and those of its module, which is not imported."""
    paths: set[Path] = set()
    with suppress(Exception):  # as above, and an importer may be anybody's
        if point.dist is not None:
            paths.update(Path(str(point.dist.locate_file(file))) for file in point.dist.files or ())
    with suppress(Exception):
        spec = importlib.util.find_spec(point.module.partition(".")[0])
        if spec is not None and spec.origin is not None:
            paths.add(Path(spec.origin))
        for folder in (spec and spec.submodule_search_locations) or ():
            paths.update(Path(folder).rglob("*.py"))
    return paths


def _below(root: str | None, depth: int) -> Iterator[str]:
    if root is None or not depth:
        return
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            yield entry.path
            if entry.is_dir():
                yield from _below(entry.path, depth - 1)
