"""Algorithms by name: those of this package, and a user's own as ``module:Class``."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.machinery import all_suffixes
from pathlib import Path

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.registry import own_class


def is_own(name: str) -> bool:
    """Whether a name is of a user's own class.

    >>> is_own("fedsage"), is_own("my_algorithms:ClassMeans")
    (False, True)
    """
    return ":" in name


def algorithm_named(name: str) -> type[Algorithm]:
    """The class of a name; ``module:Class`` is imported, from the working folder first.

    Raises:
        BadInput: for a name that nothing answers to, or a class that is no Algorithm.
    """
    if not is_own(name):
        if name not in ALGORITHMS:
            raise unknown_name("algorithm", name, ALGORITHMS)
        return ALGORITHMS[name]
    return own_class("algorithm", name, Algorithm)


def check_own_name(name: object, typed: str | None, folder: Path) -> None:
    """Before the algorithm that a result's file names is imported: a file alone gets no code to run.

    ``module:Class`` may lie anywhere on the path of imports, beside a folder that was unpacked for instance.

    Args:
        name: as the file has it; names of this and of other installed packages pass.
        typed: the own algorithm that the user named beside the folder.
        folder: that is audited or resumed.

    Raises:
        BadInput: for a name that is no text, where the user did not type the same one, or where the code lies
            in the folder itself.
    """
    if name is not None and not isinstance(name, str):  # whoever makes text of it could be made to import
        raise BadInput(
            f"{folder}: config.algorithm is {str(name)[:60]!r}, and a name is due: put a copy of result.json "
            "back"
        )
    if typed is not None and typed != name:
        raise BadInput(f"--algorithm {typed}: the run in {folder} is of {str(name)[:120]!r}: drop it")
    if isinstance(name, str) and is_own(name) and typed is None:
        raise BadInput(
            f"{folder} asks for {name[:120]!r}, which is no algorithm that is installed, and no code is run "
            f"because a file names it: if it is yours, add --algorithm {shlex.quote(name[:120])}"
        )
    refuse_inside(name, folder)


def refuse_inside(name: object, folder: Path) -> None:
    """Before the algorithm that a result's file names is imported: no code comes out of the result's folder.

    A folder of results may be somebody else's, and ``module:Class`` in it would run what lies beside it.

    Args:
        name: as the file has it; what is no own class is not looked at.
        folder: that is audited or resumed.

    Raises:
        BadInput: where the module, or a package around it, lies in the folder.
    """
    if not isinstance(name, str) or not is_own(name):
        return
    inside = folder.resolve()
    parts = name.partition(":")[0].split(".")
    for root in dict.fromkeys([str(Path.cwd()), *sys.path]):
        for depth in range(1, len(parts) + 1):
            place = Path(root, *parts[:depth])
            files = [place, *(place.with_name(place.name + suffix) for suffix in all_suffixes())]
            for file in files if place.name else ():
                around = (file.resolve(), *file.resolve().parents, *file.parents)
                if os.path.exists(file) and inside in around:
                    raise BadInput(
                        f"algorithm {name[:120]!r} lies in {folder}, and no code is run out of a folder of "
                        "results: read it, and put it elsewhere if you trust it"
                    )
