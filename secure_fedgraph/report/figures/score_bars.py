"""One model's score beside what it is to be compared with, a bar each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from secure_fedgraph.report.figures.svg import INK, MUTED, RULE, SERIES, Picture, draw

WIDTH = 4.8
"""Inches."""


@dataclass(frozen=True)
class Bar:
    """One score.

    Args:
        title: of what.
        score: as a number.
        said: as it is written.
        on: which test data it is on: bars of one kind stand together.
    """

    title: str
    score: float
    said: str
    on: str


def score_bars(name: str, caption: str, bars: Sequence[Bar]) -> Picture:
    """A picture with the first bar in colour, for it is what the page is about, and a gap between kinds."""
    places, place = [], 0.0
    for one, before in zip(bars, [bars[0], *bars], strict=False):
        place -= 1.0 if one.on == before.on else 1.9
        places.append(place)
    highest = max((one.score for one in bars), default=1.0) or 1.0

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for at, one, first in zip(places, bars, [True, *[False] * len(bars)], strict=False):
            axes.barh(
                at, one.score, height=0.4, color=SERIES[0] if first else RULE, edgecolor=INK, linewidth=0.7
            )
            axes.text(0, at + 0.42, one.title, va="center", color=INK)
            axes.text(one.score + 0.015 * highest, at, one.said, va="center", color=INK, weight="bold")
        for kind in dict.fromkeys(one.on for one in bars):
            top = max(at for at, one in zip(places, bars, strict=True) if one.on == kind)
            axes.text(0, top + 0.85, kind, va="center", color=MUTED)
        axes.set_xlim(0, 1.18 * highest)
        axes.set_ylim(min(places) - 0.35, max(places) + 1.15)
        axes.set_yticks([])
        axes.set_xticks([])
        axes.spines[["left", "bottom"]].set_visible(False)

    alt = f"{caption}. " + "; ".join(f"{one.title}, {one.on}: {one.said}" for one in bars) + "."
    return draw(name, alt, paint, WIDTH, 0.4 + 0.42 * (1 - min(places)))
