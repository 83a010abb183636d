"""Where a cell of an audit stands on the page, and whether it refutes a claim."""

from __future__ import annotations

import re
from typing import Any

from secure_fedgraph.report import words


def anchor(algorithm: str, attack: str) -> str:
    """The id of an attack's rows in the outcome table.

    >>> anchor("fedsage+", "a1-vocabulary-support")
    'o-fedsage-2b-a1-vocabulary-support'
    """
    return "o-" + re.sub(r"[^A-Za-z0-9-]", lambda m: f"-{ord(m[0]):x}", f"{algorithm}-{attack}")


def above(cell: dict[str, Any]) -> bool:
    """Whether a score's lower bound is above what a claimed epsilon allows."""
    low, ceiling = words.real(cell.get("low")), words.real(cell.get("ceiling"))
    return low is not None and ceiling is not None and low > ceiling
