"""Algorithms by name: those of this package, and a user's own as ``module:Class``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.errors import BadInput, unknown_name


def is_own(name: str) -> bool:
    """Whether a name is of a user's own class.

    >>> is_own("fedsage"), is_own("my_algorithms:ClassMeans")
    (False, True)
    """
    return ":" in name


def algorithm_named(name: str) -> type[Algorithm]:
    """The class of a name; ``module:Class`` is imported, from the working folder too.

    Raises:
        BadInput: for a name that nothing answers to, or a class that is no Algorithm.
    """
    if not is_own(name):
        if name not in ALGORITHMS:
            raise unknown_name("algorithm", name, ALGORITHMS)
        return ALGORITHMS[name]
    module, _, place = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # a console script's path starts in its own folder
        sys.path.append(here)
    found: Any
    try:
        found = importlib.import_module(module)
        for part in place.split("."):
            found = getattr(found, part)
    except Exception as error:  # the user's own code runs on import, and raises what it likes
        why = error if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise BadInput(f"algorithm {name[:120]!r} cannot be imported ({why}): give module:Class") from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise BadInput(f"algorithm {name!r} is no subclass of secure_fedgraph.Algorithm")
    return found
