"""Attacks on single owners, a line each: the score beside the best trivial guess, or nothing to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from secure_fedgraph.report.figures.svg import INK, LEAK, MUTED, PAPER, RULE, SAFE, Picture, draw

PLATE: dict[str, Any] = {"facecolor": PAPER, "edgecolor": "none", "pad": 3}
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}
WIDTH, MOST = 5.2, 16
"""Inches; attacks that are drawn."""


@dataclass(frozen=True)
class Attacked:
    """One attack.

    Args:
        subject: what it is after.
        score: the best that it reached; None where there was nothing that it could read.
        trivial: the best trivial guess.
        leaks: whether the score is surely above that.
    """

    subject: str
    score: float | None
    trivial: float | None
    leaks: bool

    def said(self) -> str:
        """In a sentence."""
        if self.score is None or self.trivial is None:
            return f"{self.subject}: nothing to read."
        verb = "leaks" if self.leaks else "no better than a trivial guess"
        return f"{self.subject}: {self.score:.2f}, trivial guess {self.trivial:.2f}, {verb}."


def attack_scores(name: str, caption: str, attacks: Sequence[Attacked]) -> Picture:
    """A picture with a line for each attack, from 0 to 1."""
    shown = attacks[:MOST]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for place, one in enumerate(reversed(shown)):
            axes.plot([0, 1], [place, place], color=RULE, linewidth=5, solid_capstyle="round", zorder=1)
            if one.score is None or one.trivial is None:
                axes.text(
                    0.5, place, "nothing to read", ha="center", va="center", color=SAFE, zorder=3, bbox=PLATE
                )
            else:
                colour, marker = (LEAK, "^") if one.leaks else (SAFE, "o")
                axes.plot(one.score, place, marker, color=colour, markersize=9, zorder=3)
                axes.plot([one.trivial] * 2, [place - 0.26, place + 0.26], color=INK, linewidth=2, zorder=2)
            axes.text(0, place + 0.36, one.subject[:1].upper() + one.subject[1:], va="center", color=INK)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.5, len(shown) - 0.3)
        axes.set_yticks([])
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
        if any(one.score is not None for one in shown):
            axes.set_xticks([0, 0.5, 1], ["0: nothing right", "0.5", "1: all right"])
            axes.set_xlabel("score of an attack; upright tick: the best guess without it", color=MUTED)

    alt = f"{caption}. {' '.join(one.said() for one in shown)}"
    return draw(name, alt, paint, WIDTH, 0.7 + 0.52 * len(shown))
