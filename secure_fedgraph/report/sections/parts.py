"""What pages are made of: the sections of an audit, and the whole that a template prints."""

from __future__ import annotations

from dataclasses import dataclass

from secure_fedgraph.report.figures.drawn import Drawn
from secure_fedgraph.report.figures.svg import Picture


@dataclass(frozen=True)
class Section:
    """The pictures of one attack.

    Args:
        code: the attack's, as in ``A1``.
        subject: what it guesses, in a few words.
        seed: the one that is shown.
    """

    code: str
    subject: str
    seed: int
    drawn: list[Drawn]


@dataclass(frozen=True)
class Story:
    """Everything that a page says.

    Args:
        told: what its template prints, by name.
        pictures: those that become files.
    """

    told: dict[str, object]
    pictures: list[Picture]
