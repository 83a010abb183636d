"""Which packages are installed, in which versions, and what needs them. None of them is imported."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from secure_fedgraph import __version__
from secure_fedgraph.cli.doctor.finding import Finding, Verdict

GROUP = "packages"
NAME = "secure-fedgraph"
PYTHON = (3, 11)
"""The oldest Python that the package is for."""
USES = {
    "data": "tables (.csv, .parquet) and Cora without a download",
    "molecules": "the data set bbbp",
    "flower": "federation, silo and server",
    "align": "silo align and server align",
    "onnx": "export --to onnx",
    "mlflow": "run --log mlflow:URI",
    "tensorboard": "run --log tensorboard:FOLDER",
}
"""Extra -> what needs it."""
MODULES = {
    "dp-accounting": "dp_accounting",
    "graphdatascience": "graphdatascience",
    "openmined-psi": "private_set_intersection",
    "pillow": "PIL",
    "scikit-network": "sknetwork",
    "pyyaml": "yaml",
    "torch-geometric": "torch_geometric",
}
"""Package -> its module, where that has another name."""


def findings() -> Iterator[Finding]:
    """Python, this package, what it needs, and each extra."""
    yield _python()
    needed, extras = _requirements()
    yield _own(bool(needed))
    for one in needed:
        there, fault = _state(one)
        verdict = Verdict.PROBLEM if fault else Verdict.OK
        yield Finding(GROUP, one.name, verdict, there, fault and f"pip install '{_without_marker(one)}'")
    for extra, use in USES.items():
        yield _extra(extra, use, extras.get(extra, []))


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed, or in another version."""
    return [one.name for one in _requirements()[1].get(extra, []) if _state(one)[1]]


def _python() -> Finding:
    version = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < PYTHON:
        return Finding(GROUP, "Python", Verdict.PROBLEM, version, "use Python 3.11 or newer")
    if sys.platform not in ("linux", "darwin"):
        mend = "it was tried on Linux and macOS alone: use one of them, or WSL"
        return Finding(GROUP, "Python", Verdict.PROBLEM, f"{version} on {sys.platform}", mend)
    return Finding(GROUP, "Python", Verdict.OK, version)


def _own(known: bool) -> Finding:
    there = f"{__version__} ({Path(__file__).resolve().parents[2]})"
    if known:
        return Finding(GROUP, NAME, Verdict.OK, there)
    mend = "it was not installed by pip, so no version below could be compared: pip install -e ."
    return Finding(GROUP, NAME, Verdict.NOTE, there, mend)


def _requirements() -> tuple[list[Requirement], dict[str, list[Requirement]]]:
    """What every run needs, and what each extra brings, as this package's metadata say."""
    needed: list[Requirement] = []
    extras: dict[str, list[Requirement]] = {extra: [] for extra in USES}
    lines: list[str] = []
    with suppress(metadata.PackageNotFoundError):
        lines = metadata.requires(NAME) or []
    for line in lines:
        with suppress(InvalidRequirement):
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                needed.append(one)
            else:
                for extra, brings in extras.items():
                    if one.marker.evaluate({"extra": extra}):
                        brings.append(one)
    return needed, extras


def _state(one: Requirement) -> tuple[str, str]:
    """What is there of a package, and what is wrong with it; the second is empty where nothing is."""
    try:
        version = metadata.version(one.name)
    except metadata.PackageNotFoundError:
        return "not installed", "missing"
    except Exception as error:  # metadata may be damaged in any way
        return f"its metadata cannot be read ({type(error).__name__})", "damaged"
    if not one.specifier.contains(version, prereleases=True):
        return f"{version}, and {one.specifier} is needed", "version"
    with suppress(ImportError, ValueError):
        if find_spec(MODULES.get(one.name, one.name.replace("-", "_"))) is not None:
            return version, ""
    return f"{version}, whose module is gone", "damaged"


def _extra(extra: str, use: str, brings: list[Requirement]) -> Finding:
    states = [(one, *_state(one)) for one in brings]
    name = f"extra {extra}"
    if not brings:
        return Finding(GROUP, name, Verdict.NOTE, f"nothing is known of it; for {use}")
    if absent := [f"{one.name} {there}" for one, there, fault in states if fault]:
        there = f"{', '.join(absent)}; for {use}"
        return Finding(GROUP, name, Verdict.NOTE, there, f"pip install '{NAME}[{extra}]'")
    there = ", ".join(f"{one.name} {version}" for one, version, _ in states)
    return Finding(GROUP, name, Verdict.OK, f"{there}; for {use}")


def _without_marker(one: Requirement) -> str:
    return f"{one.name}{one.specifier}"
