"""Which data sets can be loaded here, by their files' names. No file is opened, and nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from secure_fedgraph.cli.doctor.finding import Finding, Verdict
from secure_fedgraph.cli.doctor.packages import missing
from secure_fedgraph.graph.data import packages, sources
from secure_fedgraph.graph.data.rawfiles import RAW
from secure_fedgraph.registry import points_of

GROUP = "data"
GENERATED = ("synthetic-citation", "synthetic-molecules")
"""The data sets that need no file."""
NEEDS = {"bbbp": "molecules"}
"""Data set -> the extra that reads it, wherever its files come from."""


def findings() -> Iterator[Finding]:
    """The folder of the user's data, and each data set."""
    given, cached = sources.data_folder(), sources.cache_folder() / "data"
    yield _root(given)
    for name, raw in RAW.items():
        if raw.present(given):
            yield _readable(name, f"${sources.VARIABLE}/{raw.below}")
        elif raw.present(cached):
            yield _readable(name, f"cache folder, {raw.below}")
        elif packages.carried(name):
            yield _readable(name, packages.label(name), packed=True)
        elif raw.pyg:
            mend = f"'run' tries to download it; or put its files into {raw.below}"
            yield Finding(GROUP, name, Verdict.NOTE, "not here", mend)
        else:
            mend = f"nobody offers it for download: put its files into {raw.below}"
            yield Finding(GROUP, name, Verdict.NOTE, "not here", mend)
    for name in GENERATED:
        yield Finding(GROUP, name, Verdict.OK, "generated")
    for point in points_of("secure_fedgraph.datasets")[0]:
        package = point.dist.name if point.dist is not None else "another package"
        yield Finding(GROUP, point.name, Verdict.OK, f"package {package}")


def _root(given: Path | None) -> Finding:
    name = f"${sources.VARIABLE}"
    if given is None:
        return Finding(
            GROUP, name, Verdict.NOTE, "not set", "set it to a folder of data sets, if you have one"
        )
    if not given.is_dir():
        mend = "make the folder, or unset the variable"
        return Finding(GROUP, name, Verdict.PROBLEM, f"{given} is no folder", mend)
    return Finding(GROUP, name, Verdict.OK, str(given))


def _readable(name: str, source: str, packed: bool = False) -> Finding:
    """A data set whose files are here: whether what reads them is installed."""
    extra = "data" if packed else NEEDS.get(name)
    if extra is not None and (absent := missing(extra)):
        there = f"{source}, and {' and '.join(absent)} to read it is missing"
        return Finding(GROUP, name, Verdict.NOTE, there, f"pip install 'secure-fedgraph[{extra}]'")
    return Finding(GROUP, name, Verdict.OK, source)
