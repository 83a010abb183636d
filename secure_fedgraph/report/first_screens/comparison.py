"""The first screen of a comparison's page: whether the budget is worth spending, and on which algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from secure_fedgraph.experiment.schema.compare import NOT_WORTH, UNDECIDED, WORTH, Point
from secure_fedgraph.report import text
from secure_fedgraph.report.comparing import alone_of, beside_it, bound, lines_of, name_of, score_of, title_of
from secure_fedgraph.report.figures.budget_curve import (
    NO_GRAPH,
    PERSONAL,
    SHARED,
    Chosen,
    Level,
    Trace,
    budget_curve,
)
from secure_fedgraph.report.figures.svg import Picture
from secure_fedgraph.report.first_screens.key_figure import KeyFigure, in_words
from secure_fedgraph.report.measures import decimals

NUMBERS = ("auc", "mae")
"""Scores that are no percentages."""
SAID = {WORTH: "worth spending", NOT_WORTH: "not worth spending"}
"""A verdict in a sentence."""
TOLD = {
    "no privacy": "without privacy",
    "alone": "owners alone",
    "same budget, no graph": "same ε, without a graph",
    "commonest class": "always the commonest class",
}
"""What a score stands beside, in a sentence."""


@dataclass(frozen=True)
class Choice:
    """The point that the page is about.

    Args:
        point: with a budget.
        verdict: one of ``WORTH``, ``UNDECIDED`` and ``NOT_WORTH``; empty where nothing can be compared.
    """

    point: Point
    verdict: str


@dataclass(frozen=True)
class CompareOpening:
    """What the template prints first.

    Args:
        sentence: whether the budget is worth spending.
        curve: accuracy over budgets; None where no point has one.
        caption: above it.
        figures: three of them.
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
    choice = chosen(ran, key)
    whose = text.named(text.UNITS, unit)
    caption = f"What each budget buys: {title_of(key)}"
    if choice is None:
        told = "No point ran: below stands why." if not ran else (
            "No point has a budget: the table shows each policy as it is configured."
        )  # fmt: skip
        return CompareOpening(told, None, caption, [])
    return CompareOpening(
        _sentence(ran, choice, key, whose),
        _curve(ran, choice, key, whose),
        caption,
        [_scored(ran, choice, key), _noise(choice, whose, delta), _price(ran, choice, key)],
    )


def chosen(ran: Sequence[Point], key: str) -> Choice | None:
    """The smallest budget that is worth spending, of several algorithms the best; else the best score."""
    rows = [row for row in ran if row.kind == "budget" and score_of(row, key) is not None]
    if not rows:
        return None

    def rank(row: Point) -> tuple[int, float, float]:
        verdict = _verdict(row, key)
        score = _better(key) * (score_of(row, key) or 0.0)
        order = (WORTH, UNDECIDED, NOT_WORTH, "").index(verdict)
        return order, float(row.epsilon) if verdict == WORTH else 0.0, -score

    best = min(rows, key=rank)
    return Choice(best, _verdict(best, key))


def _verdict(row: Point, key: str) -> str:
    """As the file has it; older ones tell only how far a point is above local training."""
    for verdict in (WORTH, UNDECIDED, NOT_WORTH):
        if row.worth.startswith(verdict):
            return verdict
    gain = row.over_alone.get(key)
    if gain is None:
        return ""
    if gain.interval is None:
        return UNDECIDED if gain.mean > 0 else NOT_WORTH
    return WORTH if gain.interval[0] > 0 else UNDECIDED if gain.mean > 0 else NOT_WORTH


def _sentence(ran: Sequence[Point], choice: Choice, key: str, whose: str) -> str:
    """The verdict with what it rests on, then the scores of the shared model."""
    row, others = choice.point, beside_it(choice.point, ran, key)
    score, alone, bare = score_of(row, key) or 0.0, others["alone"], others["no privacy"]
    budget = f"{name_of(row.algorithm)} at ε = {float(row.epsilon):g} for {whose}"
    parts = [f"scores {_write(score, key)} ({title_of(key)})"]
    parts += [] if alone is None else [f"owners alone score {_write(alone, key)}"]
    parts += [] if bare is None else [f"without privacy it scores {_write(bare, key)}"]
    reason = row.worth.partition(": ")[2]
    rests_on = f": {reason}" if reason else "."
    scores = f" The shared model {text.listed(parts)}."
    if choice.verdict == UNDECIDED:
        seeds = "one seed" if row.seeds == 1 else f"{row.seeds} seeds"
        return f"Whether {budget} is worth spending is open after {seeds}{rests_on}{scores}"
    if choice.verdict in SAID:
        return f"{budget} is {SAID[choice.verdict]}{rests_on}{scores}"
    return f"{budget}: the shared model {text.listed(parts)}."


def _better(key: str) -> float:
    """1 where more is better, -1 where less is."""
    return -1.0 if key == "mae" else 1.0


def _write(value: float | None, key: str) -> str:
    return decimals(value) if key in NUMBERS else text.percent(value)


def _curve(ran: Sequence[Point], choice: Choice, key: str, whose: str) -> Picture:
    by_name = lines_of(ran)
    policies = {policy for _, policy in by_name}
    traces: list[Trace] = []
    for colour, ((algorithm, policy), rows) in enumerate(by_name.items()):
        name = name_of(algorithm) + (f", {policy}" if len(policies) > 1 else "")
        traces.append(Trace(name, colour, SHARED, _points(rows, key), _seeds(rows, key)))
        several = len(by_name) > 1
        graph = [
            (float(row.epsilon), score)
            for row in rows
            if row.without_graph and (score := score_of(row.without_graph, key)) is not None
        ]
        if graph:
            traces.append(
                Trace(f"{name}, no graph" if several else "same ε, no graph", colour, NO_GRAPH, graph)
            )
        personal = [
            (float(row.epsilon), score) for row in rows if (score := row.accuracy.get("personal")) is not None
        ]
        if personal and key != "personal":
            label = f"{name}, personal" if several else "personal models, on own test data"
            traces.append(Trace(label, colour, PERSONAL, personal))
    row = choice.point
    ring = Chosen(
        float(row.epsilon),
        score_of(row, key) or 0.0,
        f"ε = {float(row.epsilon):g}: {_write(score_of(row, key), key)}",
        choice.verdict == WORTH,
    )
    levels = _levels(ran, key)
    alt = "; ".join(
        f"{trace.label}: " + ", ".join(f"{_write(s, key)} at epsilon {e:g}" for e, s in trace.points)
        for trace in traces
    )
    alt += "".join(f"; {level.label}" for level in levels)
    alt = f"{title_of(key)} over budgets. {alt}. Marked: {name_of(row.algorithm)} at {ring.said}."
    axis = (f"budget: ε for {whose} (smaller is more private)", title_of(key))
    return budget_curve("budget-curve", alt, axis, traces, levels, ring, key not in NUMBERS)


def _points(rows: Sequence[Point], key: str) -> list[tuple[float, float]]:
    return [(float(row.epsilon), score) for row in rows if (score := score_of(row, key)) is not None]


def _seeds(rows: Sequence[Point], key: str) -> list[tuple[float, float]]:
    return [
        (float(row.epsilon), score)
        for row in rows
        if len(row.each) > 1
        for one in row.each
        if (score := one.accuracy.get(key)) is not None
    ]


def _levels(ran: Sequence[Point], key: str) -> list[Level]:
    """What does not depend on a budget. Of several scores without privacy the best."""
    levels = []
    for kind, label in (("no privacy", "no privacy"), ("no collaboration", "owners alone")):
        scores = {score for row in ran if row.kind == kind and (score := score_of(row, key)) is not None}
        if scores:
            best = min(scores) if key == "mae" else max(scores)
            told = f"{label}, at best" if len(scores) > 1 else label
            levels.append(Level(f"{told} {_write(best, key)}", best))
        elif kind == "no collaboration" and (alone := alone_of(ran, key)) is not None:
            levels.append(Level(f"{label} {_write(alone, key)}", alone))
    commonest = next((row.commonest_class for row in ran if row.commonest_class is not None), None)
    if commonest is not None and key in ("global", "local"):
        levels.append(Level(f"commonest class {_write(commonest, key)}", commonest))
    return levels


def _scored(ran: Sequence[Point], choice: Choice, key: str) -> KeyFigure:
    row = choice.point
    others = beside_it(row, ran, key)
    return KeyFigure(
        f"{name_of(row.algorithm)}: {title_of(key)}",
        _write(score_of(row, key), key),
        f"mean of {row.seeds} seeds" if row.seeds > 1 else "one seed",
        "nothing" if choice.verdict == WORTH else "plain",
        [f"{_write(others[name], key)} {told}" for name, told in TOLD.items() if others[name] is not None],
    )


def _noise(choice: Choice, whose: str, delta: float | None) -> KeyFigure:
    """The budget in words, and why another unit's epsilon is larger."""
    row = choice.point
    lines: list[str] = [in_words(row.epsilon, whose, delta)]
    if row.spent != "inf" and bound(row.spent) != bound(row.epsilon):
        lines.append(f"Spent: {bound(row.spent)}.")
    return KeyFigure(
        "The budget",
        f"ε = {float(row.epsilon):g}",
        f"for {whose}",
        "nothing" if choice.verdict == WORTH else "plain",
        [*lines, *_briefly(row.larger_units)],
    )


def _briefly(larger: Sequence[str]) -> list[str]:
    """Why other epsilons are larger; a reason that only names another unit is given once."""
    told: list[str] = []
    reasons = set[str]()
    for sentence in larger:
        head, _, reason = sentence.partition(": ")
        unit = head.removeprefix("One ").partition("'s")[0]
        shape = reason.replace(unit, "unit")
        told.append(f"{head}, for the same reason." if shape in reasons else sentence)
        reasons.add(shape)
    return told


def _price(ran: Sequence[Point], choice: Choice, key: str) -> KeyFigure:
    """What joining brought, and what noise took."""
    row = choice.point
    others = beside_it(row, ran, key)
    score, alone, bare = score_of(row, key), others["alone"], others["no privacy"]
    lines = []
    if bare is not None and score is not None:
        lines.append(f"{_points_of(score - bare, key)} against no privacy.")
    if score is None or alone is None:
        return KeyFigure("What it brings", "", "", "plain", lines or ["Nothing to compare it with."])
    return KeyFigure("What it brings", _points_of(score - alone, key), "against owners alone", "plain", lines)


def _points_of(gap: float, key: str) -> str:
    told = f"{gap:+.3f}" if key in NUMBERS else f"{100 * gap:+.1f} points"
    return told.replace("-", "\N{MINUS SIGN}")
