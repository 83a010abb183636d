"""Accuracy over budgets, with the chosen point marked and every line named where it ends."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from secure_fedgraph.report.figures.plots import MARKERS
from secure_fedgraph.report.figures.svg import INK, MUTED, PAPER, SAFE, SERIES, Picture, draw

WIDTH, HEIGHT = 5.6, 4.1  # inches: readable on a phone
SHARED, PERSONAL, NO_GRAPH = "-", (0, (4, 2)), (0, (1, 1.6))
"""Dashes: of shared models, of personal ones, of the same budget where nothing reads a link."""
ACROSS: tuple[Any, ...] = ((0, (8, 2)), (0, (2, 2)), (0, (6, 2, 1, 2)))
"""Dashes of what does not depend on a budget."""
SAID_WIDE, SAID_TALL = 0.33, 0.045
"""Of the words beside the ring, as shares of the axes; half of their height."""
WRAP, LINE = 19, 0.054
"""Characters in a line of a label; its height as a share of the axis."""


@dataclass(frozen=True)
class Trace:
    """A line over budgets.

    Args:
        label: at its end.
        colour: the number of its colour, which lines of one algorithm share.
        dash: one of those above.
        points: (epsilon, score) by epsilon.
        seeds: (epsilon, score) of single seeds.
    """

    label: str
    colour: int
    dash: Any
    points: Sequence[tuple[float, float]]
    seeds: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Level:
    """What does not depend on a budget, as a line across."""

    label: str
    score: float


@dataclass(frozen=True)
class Chosen:
    """The point that the page is about.

    Args:
        said: beside its ring.
        worth: whether it is worth spending.
    """

    epsilon: float
    score: float
    said: str
    worth: bool


def budget_curve(
    name: str,
    alt: str,
    axis: tuple[str, str],
    traces: Sequence[Trace],
    levels: Sequence[Level],
    chosen: Chosen | None,
    as_percent: bool,
) -> Picture:
    """One picture.

    Args:
        axis: the titles across and upwards.
        as_percent: or as numbers.
    """

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        budgets = sorted({epsilon for trace in traces for epsilon, _ in trace.points})
        axes.set_xscale("log")
        wide = (budgets[-1] / budgets[0]) ** 0.06 if len(budgets) > 1 else 1.5
        axes.set_xlim(budgets[0] / wide, budgets[-1] * wide)
        axes.set_xticks(budgets, [f"{one:g}" for one in budgets])
        axes.minorticks_off()
        axes.set_ylim(*_limits(traces, levels, as_percent))
        ends = [_level(axes, one, number) for number, one in enumerate(levels)]
        ends += [_trace(axes, one) for one in traces]
        if chosen is not None:
            _ring(axes, chosen, traces, levels)
        _labels(axes, ends)
        axes.set_xlabel(axis[0])
        axes.set_title(axis[1], loc="left")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        if as_percent:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 2):g} %"))
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    return draw(name, alt, paint, WIDTH, HEIGHT + 0.12 * max(0, len(traces) + len(levels) - 7))


@dataclass(frozen=True)
class _End:
    """Where a line ends, and what is written there."""

    score: float
    label: str
    colour: str


def _limits(traces: Sequence[Trace], levels: Sequence[Level], as_percent: bool) -> tuple[float, float]:
    shown = [score for trace in traces for _, score in (*trace.points, *trace.seeds)]
    shown += [level.score for level in levels]
    low, high = min(shown), max(shown)
    room = 0.1 * (high - low) or 0.05
    return max(0.0, low - room), min(1.0, high + room) if as_percent else high + room


def _level(axes: Axes, level: Level, number: int) -> _End:
    axes.axhline(level.score, color=MUTED, linewidth=1.2, linestyle=ACROSS[number % len(ACROSS)], zorder=1.5)
    return _End(level.score, level.label, MUTED)


def _trace(axes: Axes, trace: Trace) -> _End:
    colour = SERIES[trace.colour % len(SERIES)]
    shared = trace.dash == SHARED
    if trace.seeds:
        axes.plot(*zip(*trace.seeds, strict=True), ".", color=colour, alpha=0.45, markersize=6, zorder=2)
    axes.plot(
        *zip(*trace.points, strict=True),
        color=colour,
        linestyle=trace.dash,
        linewidth=2.2 if shared else 1.3,
        marker=MARKERS[trace.colour % len(MARKERS)],
        markersize=6.5 if shared else 4.5,
        markerfacecolor=colour if shared else "none",
        zorder=3 if shared else 2.5,
    )
    return _End(trace.points[-1][1], trace.label, colour)


def _ring(axes: Axes, chosen: Chosen, traces: Sequence[Trace], levels: Sequence[Level]) -> None:
    """A ring around the chosen point, and its figures where there is room."""
    colour = SAFE if chosen.worth else INK
    axes.plot(
        chosen.epsilon, chosen.score, "o", markersize=17, markerfacecolor="none", markeredgecolor=colour,
        markeredgewidth=2.2, zorder=4,
    )  # fmt: skip
    low, high = axes.get_ylim()
    left, right = np.log(axes.get_xlim())
    across, up = (np.log(chosen.epsilon) - left) / (right - left), (chosen.score - low) / (high - low)
    start = across + 0.05 if across < 0.5 else across - 0.05 - SAID_WIDE
    beside = np.exp(left + (right - left) * np.linspace(start, start + SAID_WIDE, 9))
    lines = np.array([np.full(9, level.score) for level in levels] + [_at(one, beside) for one in traces])
    heights = (lines - low) / (high - low)

    def crossed(place: float) -> tuple[int, float]:
        """How many lines run through the words there; nearer is better."""
        inside = 0.06 < place < 0.96
        return int((np.abs(heights - place) < SAID_TALL).any(axis=1).sum()) + 9 * (not inside), abs(
            place - up
        )

    place = min((up + step for step in (0.1, -0.1, 0.16, -0.16, 0.22, -0.22, 0.3, -0.3)), key=crossed)
    axes.text(
        start if across < 0.5 else start + SAID_WIDE,
        place,
        chosen.said,
        transform=axes.transAxes,
        ha="left" if across < 0.5 else "right",
        va="center",
        fontsize=10.5,
        fontweight="bold",
        color=colour,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
        zorder=5,
    )


def _at(trace: Trace, places: np.ndarray) -> np.ndarray:
    """A line's height at some budgets; where it does not run, none."""
    budgets, scores = zip(*trace.points, strict=True)
    found: np.ndarray = np.interp(np.log(places), np.log(budgets), scores, left=np.nan, right=np.nan)
    return found


def _labels(axes: Axes, ends: Sequence[_End]) -> None:
    """Every line's name at its end, none on another."""
    low, high = axes.get_ylim()
    written = [textwrap.fill(end.label, WRAP) for end in ends]
    tall = [LINE * (text.count("\n") + 1) + 0.012 for text in written]
    wanted = [(end.score - low) / (high - low) for end in ends]
    placed = spread(wanted, tall)
    for end, text, at, to in zip(ends, written, wanted, placed, strict=True):
        axes.plot(
            [1.005, 1.03], [at, to], transform=axes.transAxes, color=end.colour, linewidth=1.1, clip_on=False
        )
        axes.text(1.04, to, text, transform=axes.transAxes, va="center", fontsize=8.8, linespacing=1.05)


def spread(wanted: Sequence[float], tall: Sequence[float]) -> list[float]:
    """Middles of labels as near to where they are wanted as they can stand without touching.

    Args:
        wanted: heights from 0 to 1.
        tall: how high each label is.

    >>> spread([0.5, 0.5], [0.1, 0.1])
    [0.45, 0.55]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[tuple[list[int], float]] = []  # labels that touch, and their common middle
    for i in order:
        members, middle = [i], wanted[i]
        while blocks:
            others, there = blocks[-1]
            gap = (sum(tall[j] for j in others) + sum(tall[j] for j in members)) / 2
            if middle - there >= gap:
                break
            blocks.pop()
            members = [*others, *members]
            middle = _middle(members, wanted, tall)
        blocks.append((members, middle))
    placed = [0.0] * len(wanted)
    for members, middle in blocks:
        bottom = middle - sum(tall[j] for j in members) / 2
        for j in members:
            placed[j] = round(bottom + tall[j] / 2, 6)
            bottom += tall[j]
    return placed


def _middle(members: Sequence[int], wanted: Sequence[float], tall: Sequence[float]) -> float:
    """Of a block: the mean of what its members want, each less its place within the block."""
    whole, below, offsets = sum(tall[j] for j in members), 0.0, []
    for j in members:
        offsets.append(below + tall[j] / 2 - whole / 2)
        below += tall[j]
    return float(np.mean([wanted[j] - offset for j, offset in zip(members, offsets, strict=True)]))
