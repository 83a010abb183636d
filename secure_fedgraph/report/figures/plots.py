"""Scores and losses over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from secure_fedgraph.report.figures.svg import SERIES, Picture, draw

WIDTH = 4.6  # inches; at this size the text is still readable on a phone
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.6)), (0, (6, 2, 1, 2)), "-", (0, (2, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
Line = tuple[list[float], list[float]]
"""Rounds, and the value in each of them."""


@dataclass(frozen=True)
class Curve:
    """One measure over the rounds, a line for each seed."""

    label: str
    lines: list[Line]


def over_rounds(name: str, title: str, curves: Sequence[Curve], as_percent: bool, alt: str) -> Picture:
    """One measure over the rounds; each later curve is thinner, so that one below another stays visible."""

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, curve in enumerate(curves):
            look = {"color": SERIES[i % len(SERIES)], "linestyle": DASHES[i % len(DASHES)]}
            for rounds, values in curve.lines if len(curve.lines) > 1 else ():
                axes.plot(rounds, values, **look, linewidth=0.8, alpha=0.6)
            rounds, middle = _mean(curve.lines)
            axes.plot(
                rounds,
                middle,
                **look,
                linewidth=max(1.2, 3.4 - 0.7 * i) if len(curves) > 1 else 2.0,
                marker=None if len(rounds) > 30 else MARKERS[i % len(MARKERS)],
                markersize=max(3.0, 6.5 - 1.3 * i),
                label=curve.label + (f" (mean of {len(curve.lines)} seeds)" if len(curve.lines) > 1 else ""),
            )
        axes.set_ylabel(title)
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        if as_percent:
            percents(axes)
        if len(curves) > 1 or len(curves[0].lines) > 1:
            figure.legend(loc="outside lower center", ncols=min(3, len(curves)), handlelength=3.4)

    return draw(name, alt, paint, WIDTH, 3.1)


def percents(axes: Axes) -> None:
    """Writes the upward axis in percent, from 0 to 100 at most."""
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 2):g} %"))
    low, high = axes.get_ylim()
    axes.set_ylim(max(0.0, low), min(1.0, high) if high > 1 else high)


def _mean(lines: Sequence[Line]) -> Line:
    """The mean line; seeds that stopped early end it where they end."""
    shortest = min(len(rounds) for rounds, _ in lines)
    values = np.array([values[:shortest] for _, values in lines], dtype=float)
    return list(lines[0][0][:shortest]), list(values.mean(axis=0))
