"""The first screen of a comparison's page: whether the budget is worth spending, and on which algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from secure_fedgraph.experiment.schema.compare import NOT_WORTH, UNDECIDED, WORTH, Point
from secure_fedgraph.report import text
from secure_fedgraph.report.comparing import alone_of, beside_it, bound, lines_of, name_of, score_of, title_of
from secure_fedgraph.report.figures.plots import MARKERS, percents
from secure_fedgraph.report.figures.svg import INK, MUTED, SAFE, SERIES, Picture, draw
from secure_fedgraph.report.first_screens.key_figure import KeyFigure, in_words
from secure_fedgraph.report.measures import decimals

# Scores over budgets, with a ring around the point that the page is about.

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


NUMBERS = ("auc", "mae")
"""Scores that are no percentages."""
VERDICTS = (WORTH, UNDECIDED, NOT_WORTH, "")
"""How a point's verdict begins, from the best on; empty where nothing can be compared."""
TOLD = {
    "no privacy": "without privacy",
    "alone": "owners alone",
    "same budget, no graph": "same ε, without a graph",
    "commonest class": "always the commonest class",
}
"""What a score stands beside, in a sentence."""


@dataclass(frozen=True)
class CompareOpening:
    """What the template prints first.

    Args:
        sentence: whether the budget is worth spending.
        curve: scores over budgets; None where no point has one.
        caption: above it.
        figures: of the point that the sentence is about.
    """

    sentence: str
    curve: Picture | None
    caption: str
    figures: list[KeyFigure]


def compare_opening(ran: Sequence[Point], key: str, unit: str, delta: float | None = None) -> CompareOpening:
    """The first screen.

    Args:
        ran: the points that ran.
        key: of the score.
        unit: whose epsilon it is.
        delta: of the epsilons, where the file has it.
    """
    caption = f"What each budget buys: {title_of(key)}"
    rows = [row for row in ran if row.kind == "budget" and score_of(row, key) is not None]
    if not rows:
        why = "No point has a budget: the table shows each policy as it is configured."
        return CompareOpening(why if ran else "No point ran: below stands why.", None, caption, [])
    row, whose = min(rows, key=lambda row: _rank(row, key)), text.named(text.UNITS, unit)
    figures = [_scored(ran, row, key), _noise(row, whose, delta)]
    return CompareOpening(_sentence(ran, row, key, whose), _curve(ran, row, key, whose), caption, figures)


def _verdict(row: Point) -> str:
    return next(verdict for verdict in VERDICTS if row.worth.startswith(verdict))


def _rank(row: Point, key: str) -> tuple[int, float, float]:
    """The smallest budget that is worth spending comes first, of several algorithms the best."""
    verdict, score = _verdict(row), score_of(row, key) or 0.0
    return (
        VERDICTS.index(verdict),
        float(row.epsilon) if verdict == WORTH else 0.0,
        score if key == "mae" else -score,
    )


def _sentence(ran: Sequence[Point], row: Point, key: str, whose: str) -> str:
    """The verdict with what it rests on, then the scores of the shared model."""
    others = beside_it(row, ran, key)
    parts = [f"scores {_write(score_of(row, key), key)} ({title_of(key)})"]
    for name, said in (("alone", "owners alone score"), ("no privacy", "without privacy it scores")):
        parts += [] if others[name] is None else [f"{said} {_write(others[name], key)}"]
    budget = f"{name_of(row.algorithm)} at ε = {float(row.epsilon):g} for {whose}"
    seeds = "one seed" if row.seeds == 1 else f"{row.seeds} seeds"
    verdict = {
        WORTH: f"{budget} is worth spending",
        UNDECIDED: f"Whether {budget} is worth spending is open after {seeds}",
        NOT_WORTH: f"{budget} is not worth spending",
        "": f"{budget} has nothing to be compared with",
    }[_verdict(row)]
    reason = row.worth.partition(": ")[2]
    return f"{verdict}{f': {reason}' if reason else '.'} The shared model {text.listed(parts)}."


def _write(value: float | None, key: str) -> str:
    return decimals(value) if key in NUMBERS else text.percent(value)


def _curve(ran: Sequence[Point], row: Point, key: str, whose: str) -> Picture:
    reads: dict[str, tuple[Any, Callable[[Point], float | None]]] = {
        "": (SHARED, lambda one: score_of(one, key)),
        ", no graph": (NO_GRAPH, lambda one: beside_it(one, (), key)["same budget, no graph"]),
        ", personal": (PERSONAL, lambda one: one.accuracy.get("personal")),
    }
    traces: list[Trace] = []
    for colour, ((algorithm, policy), rows) in enumerate(lines_of(ran).items()):
        for kind, (dash, read) in reads.items():
            points = [(float(one.epsilon), score) for one in rows if (score := read(one)) is not None]
            if points:
                traces.append(Trace(f"{name_of(algorithm)}, {policy}{kind}", colour, dash, points))
    levels = _levels(ran, key)
    drawn = [
        f"{trace.label}: " + ", ".join(f"{_write(s, key)} at epsilon {e:g}" for e, s in trace.points)
        for trace in traces
    ]
    epsilon, score = float(row.epsilon), score_of(row, key) or 0.0
    marked = f"Marked: {name_of(row.algorithm)} at ε = {epsilon:g}: {_write(score, key)}."
    alt = f"{title_of(key)} over budgets. {'; '.join([*drawn, *levels])}. {marked}"
    axis = (f"budget: ε for {whose} (smaller is more private)", title_of(key))
    ring = (epsilon, score, _verdict(row) == WORTH)
    return budget_curve("budget-curve", alt, axis, traces, levels, ring, key not in NUMBERS)


def _levels(ran: Sequence[Point], key: str) -> dict[str, float]:
    """What does not depend on a budget. Of several scores without privacy the best."""
    bare = {score for row in ran if row.kind == "no privacy" and (score := score_of(row, key)) is not None}
    classes = (row.commonest_class for row in ran if row.commonest_class is not None)
    found = {
        "no privacy, at best" if len(bare) > 1 else "no privacy": (min if key == "mae" else max)(
            bare, default=None
        ),
        "owners alone": alone_of(ran, key),
        "commonest class": next(classes, None) if key in ("global", "local") else None,
    }
    return {f"{name} {_write(score, key)}": score for name, score in found.items() if score is not None}


def _scored(ran: Sequence[Point], row: Point, key: str) -> KeyFigure:
    others = beside_it(row, ran, key)
    return KeyFigure(
        f"{name_of(row.algorithm)}: {title_of(key)}",
        _write(score_of(row, key), key),
        f"mean of {row.seeds} seeds" if row.seeds > 1 else "one seed",
        "nothing" if _verdict(row) == WORTH else "plain",
        [f"{_write(others[name], key)} {told}" for name, told in TOLD.items() if others[name] is not None],
    )


def _noise(row: Point, whose: str, delta: float | None) -> KeyFigure:
    """The budget in words, and why other units' epsilons are larger."""
    spent = [f"Spent: {bound(row.spent)}."] if row.spent not in ("inf", row.epsilon) else []
    return KeyFigure(
        "The budget",
        f"ε = {float(row.epsilon):g}",
        f"for {whose}",
        "nothing" if _verdict(row) == WORTH else "plain",
        [in_words(row.epsilon, whose, delta), *spent, *row.larger_units],
    )
