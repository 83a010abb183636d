"""Pictures with their captions and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from secure_fedgraph.report.figures.svg import Picture


@dataclass(frozen=True)
class Table:
    """Numbers under their heads."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Drawn:
    """A picture with its caption and its numbers; ``state`` gives the caption an icon and a colour."""

    picture: Picture
    caption: str
    table: Table
    state: str = ""
