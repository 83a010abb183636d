"""The work of ``doctor``: packages, data, memory and folders. Nothing is imported, downloaded or changed."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click
from packaging.requirements import Requirement

from secure_fedgraph import __version__
from secure_fedgraph.cli.screen import to_a_pipe, visible
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.graph.data import packages, sources
from secure_fedgraph.graph.data.rawfiles import RAW

NAME = "secure-fedgraph"
OK, NOTE, PROBLEM = "ok", "note", "problem"
USES = {
    "data": "tables (.csv, .parquet) and Cora without a download",
    "molecules": "the data set bbbp",
    "flower": "federation, silo and server",
    "align": "silo align and server align",
    "ray": "--engine ray",
}
"""Extra -> what needs it."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, whether it is enough, what is there, and what to do where something is missing."""

    group: str
    name: str
    verdict: str
    there: str
    mend: str = ""


def doctor(as_json: bool) -> None:
    """Prints what is there and what is missing.

    Raises:
        SecureFedGraphError: where something is missing that every run needs.
    """
    found = [*of_packages(), *of_data(), *of_machine()]
    problems = [one.name for one in found if one.verdict == PROBLEM]
    with to_a_pipe():
        if as_json:
            verdict = PROBLEM if problems else OK
            rows = [asdict(one) for one in found]
            click.echo(json.dumps({"schema": "secure-fedgraph/doctor/1", "verdict": verdict, "checks": rows}))
        else:
            width = max(len(one.name) for one in found) + 2
            for one in found:
                mend = f"; mend: {one.mend}" if one.mend else ""
                click.echo(visible(f"{one.verdict:8}{one.name:{width}}{one.there}{mend}"))
    if problems:
        raise SecureFedGraphError(f"runs will fail here until this is mended: {', '.join(problems)}")


def of_packages() -> Iterator[Finding]:
    """Python, what the package needs, and each extra."""
    version = f"{platform.python_version()} ({sys.executable}), {NAME} {__version__}"
    old = sys.version_info < (3, 11)
    yield Finding("packages", "Python", PROBLEM if old else OK, version, "use Python 3.11" if old else "")
    needed, extras = requirements()
    for one in needed:
        there, fits = state(one)
        mend = "" if fits else f"pip install '{one.name}{one.specifier}'"
        yield Finding("packages", one.name, OK if fits else PROBLEM, there, mend)
    for extra, use in USES.items():
        told = ", ".join(f"{one.name} {state(one)[0]}" for one in extras[extra])
        whole = all(state(one)[1] for one in extras[extra])
        mend = "" if whole else f"pip install '{NAME}[{extra}]'"
        yield Finding("packages", f"extra {extra}", OK if whole else NOTE, f"{told}; for {use}", mend)


def requirements() -> tuple[list[Requirement], dict[str, list[Requirement]]]:
    """What every run needs, and what each extra brings, as this package's metadata say."""
    lines: list[str] = []
    with suppress(metadata.PackageNotFoundError):
        lines = metadata.requires(NAME) or []
    every = [Requirement(line) for line in lines]
    needed = [one for one in every if one.marker is None or one.marker.evaluate({"extra": ""})]
    rest = [one for one in every if one not in needed and one.marker is not None]
    extras = {
        extra: [one for one in rest if one.marker is not None and one.marker.evaluate({"extra": extra})]
        for extra in USES
    }
    return needed, extras


def state(one: Requirement) -> tuple[str, bool]:
    """What is there of a package, and whether that is what is needed."""
    try:
        version = metadata.version(one.name)
    except metadata.PackageNotFoundError:
        return "not installed", False
    if one.specifier.contains(version, prereleases=True):
        return version, True
    return f"{version}, and {one.specifier} is needed", False


def of_data() -> Iterator[Finding]:
    """The folder of the user's data, and each data set, by the names of its files."""
    given, cached = sources.data_folder(), sources.cache_folder() / "data"
    variable = f"${sources.VARIABLE}"
    if given is None:
        yield Finding("data", variable, NOTE, "not set", "set it to a folder of data sets, if you have one")
    else:
        there = given.is_dir()
        mend = "" if there else "make the folder, or unset the variable"
        yield Finding("data", variable, OK if there else PROBLEM, str(given), mend)
    for name, raw in RAW.items():
        if raw.present(given) or raw.present(cached):
            where = variable if raw.present(given) else "the cache folder"
            yield Finding("data", name, OK, f"{where}, {raw.below}")
        elif packages.carried(name):
            yield Finding("data", name, OK, packages.label(name))
        else:
            how = "'run' tries to download it" if raw.pyg else "nobody offers it for download"
            yield Finding("data", name, NOTE, "not here", f"{how}; or put its files into {raw.below}")


def of_machine() -> Iterator[Finding]:
    """Processors and memory, and the folder that a run may write into."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    there = f"{os.cpu_count()} cores, {memory / 1e9:.1f} GB; a run takes about 2 GB"
    yield Finding("machine", "machine", OK, there)
    folder = Path("runs") if Path("runs").exists() else Path()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as the ledger is locked
        there = f"{folder.absolute()}, {shutil.disk_usage(folder).free / 1e9:.1f} GB free"
        yield Finding("machine", "runs", OK, there)
    except OSError as error:
        mend = "go to a folder that you may write into, or give --out"
        yield Finding("machine", "runs", PROBLEM, f"{folder.absolute()}: {error.strerror or error}", mend)
