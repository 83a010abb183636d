"""What pages need to know of a cell of an audit: its place, its words, and whether it refutes a claim."""

from __future__ import annotations

import re

from secure_fedgraph.experiment.schema.audit import Cell, NotRun, Reconstruction
from secure_fedgraph.experiment.schema.score_verdict import whom

AS_CONFIGURED = "as configured"


def anchor(algorithm: str, attack: str) -> str:
    """The id of an attack's numbers.

    >>> anchor("fedsage+", "a1-vocabulary-support")
    'o-fedsage-2b-a1-vocabulary-support'
    """
    return "o-" + re.sub(r"[^A-Za-z0-9-]", lambda m: f"-{ord(m[0]):x}", f"{algorithm}-{attack}")


def subject_of(told: Cell | NotRun | Reconstruction) -> str:
    """What an attack learns in a few words, as the audit has it, else from its id.

    >>> subject_of(NotRun(policy="masked", attack="d1-index-lists"))
    'index lists'
    >>> subject_of(NotRun(policy="masked", attack="d1-x", subject="links"))
    'links'
    """
    return told.subject or " ".join(told.attack.split("-")[1:]) or told.attack


def code_of(told: Cell | NotRun | Reconstruction) -> str:
    """An attack's code, as in ``A1``."""
    return told.attack.split("-")[0].upper()


def aim_of(cell: Cell) -> str:
    """Whether a cell is about single owners or about several together."""
    return whom(cell.settings.aim, cell.owners)


def above(cell: Cell) -> bool:
    """Whether a score is surely above what a claimed epsilon allows."""
    return exceeds(at_least(cell.low, cell.surely_at_least), cell.ceiling)


def exceeds(least: float | None, ceiling: float | None) -> bool:
    """The same, of the two numbers."""
    return least is not None and ceiling is not None and least > ceiling


def at_least(low: float | None, surely_at_least: float | None) -> float | None:
    """The lower bound to compare with a ceiling; older files have only that of the 95 % interval.

    >>> at_least(0.8, 0.7), at_least(0.8, None)
    (0.7, 0.8)
    """
    return low if surely_at_least is None else surely_at_least
