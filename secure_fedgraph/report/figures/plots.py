"""The pictures: accuracy over rounds, true against reconstructed words and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from secure_fedgraph.report.figures.svg import GUESS, INK, LEAK, RULE, SERIES, TRUE, Picture, draw

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


@dataclass(frozen=True)
class Strip:
    """What one owner has, and what was guessed: a value for each word, or for each class."""

    owner: str
    true: np.ndarray
    guess: np.ndarray


@dataclass(frozen=True)
class Reach:
    """Setting -> score."""

    label: str
    scores: dict[float, float]


def over_rounds(name: str, title: str, curves: Sequence[Curve], as_percent: bool, alt: str) -> Picture:
    """One measure over the rounds.

    Curves that lie on each other stay visible: the first is a broad band, each later one thinner, with its
    dash and marker.
    """

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, curve in enumerate(curves):
            look = {"color": SERIES[i % len(SERIES)], "linestyle": DASHES[i % len(DASHES)]}
            broad = i == 0 and len(curves) > 1
            lines = curve.lines
            if len(lines) > 1:
                for rounds, values in lines:
                    axes.plot(rounds, values, **look, linewidth=0.8, alpha=0.6)
            rounds, middle = _mean(lines)
            axes.plot(
                rounds,
                middle,
                **look,
                linewidth=8.0 if broad else max(1.2, 2.6 - 0.7 * i) if len(curves) > 1 else 2.0,
                alpha=0.5 if broad else 1.0,
                solid_capstyle="round",
                marker=None if broad or len(rounds) > 30 else MARKERS[i % len(MARKERS)],
                markersize=max(3.0, 6.5 - 1.3 * i),
                label=curve.label + (f" (mean of {len(lines)} seeds)" if len(lines) > 1 else ""),
            )
        axes.set_ylabel(title)
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        if as_percent:
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 2):g} %"))
            low, high = axes.get_ylim()
            axes.set_ylim(max(0.0, low), min(1.0, high) if high > 1 else high)
        if len(curves) > 1 or len(curves[0].lines) > 1:
            figure.legend(loc="outside lower center", ncols=min(3, len(curves)), handlelength=3.4)

    return draw(name, alt, paint, WIDTH, 3.1)


def vocabulary(name: str, title: str, owners: Sequence[Strip], alt: str) -> Picture:
    """A strip of words for each owner: true, guessed, and where the two differ."""

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(owners), 1, squeeze=False, sharex=True)[:, 0]
        for axes, owner in zip(panels, owners, strict=True):
            true, guess = owner.true > 0, owner.guess > 0
            wrong = true != guess
            for row, (words, colour) in enumerate(((true, TRUE), (guess, GUESS), (wrong, LEAK))):
                axes.broken_barh(
                    _stretches(words),
                    (2.14 - row, 0.72),
                    facecolors=colour,
                    edgecolors=colour,
                    linewidth=0.5 * (row == 2),
                )
                axes.plot([0, len(true)], [2.1 - row] * 2, color=RULE, linewidth=0.7)
            axes.set_yticks([2.5, 1.5, 0.5], ["true", "guessed", "wrong"])
            axes.set_ylim(0, 3)
            axes.set_xlim(0, max(1, len(true)))
            axes.tick_params(length=0)
            axes.spines[["left", "bottom"]].set_visible(False)
            axes.set_title(f"{owner.owner}: {_wrong(wrong)}", fontweight="bold")
        panels[-1].set_xlabel(title)

    return draw(name, alt, paint, WIDTH, 0.55 + 0.98 * len(owners))


def label_counts(name: str, owners: Sequence[Strip], top: float, classes: Sequence[str], alt: str) -> Picture:
    """Training labels by class for each owner, true beside guessed; a bar past the top says its number.

    Args:
        owners: with the labels of each class.
        top: the highest count drawn, shared by the pictures that are compared.
    """

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(owners), 1, squeeze=False, sharex=True)[:, 0]
        for axes, owner in zip(panels, owners, strict=True):
            true, guess = owner.true, owner.guess
            places = np.arange(len(true))
            axes.bar(places - 0.2, np.minimum(true, top), 0.38, color=TRUE, label="true")
            axes.bar(
                places + 0.2,
                np.minimum(guess, top),
                0.38,
                facecolor="none",
                edgecolor=GUESS,
                hatch="/////",
                linewidth=1.2,
                label="guessed",
            )
            _past_the_top(axes, places + 0.2, guess, top)
            axes.set_ylim(0, top * 1.16)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
            axes.grid(axis="y")
            axes.set_axisbelow(True)
            axes.set_xticks(places, classes)
            axes.tick_params(axis="x", length=0)
            axes.set_title(owner.owner, fontweight="bold")
        panels[-1].set_xlabel("class")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)

    return draw(name, alt, paint, WIDTH, 0.85 + 1.35 * len(owners))


def leak_curves(name: str, curves: Sequence[Reach], places: Sequence[float], alt: str) -> Picture:
    """A score from 0 to 1 over a setting, the settings evenly spaced.

    Args:
        curves: lines on each other: earlier ones are broader.
        places: the settings, in order.
    """

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, curve in enumerate(curves):
            axes.plot(
                [places.index(at) for at in curve.scores],
                list(curve.scores.values()),
                color=SERIES[i % len(SERIES)],
                linestyle=DASHES[i % len(DASHES)],
                linewidth=max(1.2, 3.4 - 0.5 * i),
                marker=MARKERS[i % len(MARKERS)],
                markersize=max(3.5, 9.0 - 1.2 * i),
                label=curve.label,
                clip_on=False,
            )
        axes.set_xticks(range(len(places)), [f"{at:g}" for at in places])
        axes.set_xlabel("exchange batch")
        axes.set_ylabel("exact rows")
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 2):g} %"))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        # one below the other: two of these labels side by side are wider than a phone
        figure.legend(loc="outside lower center", ncols=1, handlelength=3.4)

    return draw(name, alt, paint, WIDTH, 2.7 + 0.2 * len(curves))


def _past_the_top(axes: Axes, places: np.ndarray, guess: np.ndarray, top: float) -> None:
    for place, value in zip(places, guess, strict=True):
        if value > top:
            axes.plot([place], [top], marker=(3, 0, 0), markersize=6, color=GUESS, clip_on=False)
            axes.text(place, top * 1.05, f"{value:,.0f}", ha="center", va="bottom", color=INK, fontsize=8.5)


def _mean(lines: Sequence[Line]) -> Line:
    """The mean line; seeds that stopped early end it where they end."""
    shortest = min(len(rounds) for rounds, _ in lines)
    values = np.array([values[:shortest] for _, values in lines], dtype=float)
    return list(lines[0][0][:shortest]), list(values.mean(axis=0))


def _stretches(words: np.ndarray) -> list[tuple[int, int]]:
    """Runs of True as (start, length): far fewer shapes than words."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], words, [False]]).astype(int)))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _wrong(wrong: np.ndarray) -> str:
    many = int(wrong.sum())
    return f"{many:,} of {len(wrong):,} words wrong" if many else f"all {len(wrong):,} words right"
