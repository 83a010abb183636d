"""Scores over budgets, with a ring around the point that the page is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from secure_fedgraph.report.figures.plots import MARKERS, percents
from secure_fedgraph.report.figures.svg import INK, MUTED, SAFE, SERIES, Picture, draw

WIDTH, HEIGHT = 5.6, 3.9  # inches: readable on a phone
SHARED, PERSONAL, NO_GRAPH = "-", (0, (4, 2)), (0, (1, 1.6))
"""Dashes: of shared models, of personal ones, of the same budget where nothing reads a link."""
ACROSS: tuple[Any, ...] = ((0, (8, 2)), (0, (2, 2)), (0, (6, 2, 1, 2)))
"""Dashes of what does not depend on a budget."""


@dataclass(frozen=True)
class Trace:
    """A line over budgets.

    Args:
        label: in the legend.
        colour: the number of its colour, which lines of one algorithm share.
        dash: one of those above.
        points: (epsilon, score) by epsilon.
    """

    label: str
    colour: int
    dash: Any
    points: Sequence[tuple[float, float]]


def budget_curve(
    name: str,
    alt: str,
    axis: tuple[str, str],
    traces: Sequence[Trace],
    levels: Mapping[str, float],
    ring: tuple[float, float, bool],
    as_percent: bool,
) -> Picture:
    """One picture.

    Args:
        axis: the titles across and upwards.
        levels: scores that do not depend on a budget, by label.
        ring: epsilon and score of the point in the ring, and whether it is worth spending.
        as_percent: or as numbers.
    """

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        budgets = sorted({epsilon for trace in traces for epsilon, _ in trace.points})
        axes.set_xscale("log")
        axes.set_xticks(budgets, [f"{one:g}" for one in budgets])
        axes.minorticks_off()
        for number, (label, score) in enumerate(levels.items()):
            dash = ACROSS[number % len(ACROSS)]
            axes.axhline(score, color=MUTED, linewidth=1.2, linestyle=dash, label=label)
        for trace in traces:
            colour, shared = SERIES[trace.colour % len(SERIES)], trace.dash == SHARED
            axes.plot(
                *zip(*trace.points, strict=True),
                color=colour,
                linestyle=trace.dash,
                linewidth=2.2 if shared else 1.3,
                marker=MARKERS[trace.colour % len(MARKERS)],
                markersize=6.5 if shared else 4.5,
                markerfacecolor=colour if shared else "none",
                label=trace.label,
            )
        epsilon, score, worth = ring
        edge = SAFE if worth else INK
        axes.plot(epsilon, score, "o", markersize=17, mfc="none", mec=edge, mew=2.2, zorder=4)
        axes.set_xlabel(axis[0])
        axes.set_title(axis[1], loc="left")
        axes.margins(x=0.08)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        if as_percent:
            percents(axes)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8.8, handlelength=3.4)

    return draw(name, alt, paint, WIDTH, HEIGHT + 0.1 * (len(traces) + len(levels)))
