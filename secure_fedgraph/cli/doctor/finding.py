"""One line of ``doctor``: what was looked at, what is there, and whether that is enough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """Whether what is there is enough."""

    OK = "ok"
    NOTE = "note"
    """Something optional is missing; what needs it says so."""
    PROBLEM = "problem"
    """Something that every run needs is missing."""


@dataclass(frozen=True)
class Finding:
    """What was looked at.

    Args:
        group: the heading that it stands under.
        name: what was looked at.
        verdict: whether it is enough.
        there: what is there.
        mend: what to do; empty where nothing has to be done.
    """

    group: str
    name: str
    verdict: Verdict
    there: str
    mend: str = ""


def summary(findings: Iterable[Finding]) -> dict[str, Any]:
    """All of it as one JSON object.

    Returns:
        ``verdict`` is ``problem`` where one finding is one, else ``ok``.
    """
    rows = [asdict(one) for one in findings]
    broken = any(row["verdict"] == Verdict.PROBLEM for row in rows)
    return {
        "schema": "secure-fedgraph/doctor/1",
        "verdict": str(Verdict.PROBLEM if broken else Verdict.OK),
        "checks": rows,
    }
