"""What the page of a comparison says: accuracy over budgets, every point, what leaks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from secure_fedgraph.experiment.schema import CompareResult
from secure_fedgraph.experiment.schema.compare import Point, WithoutGraph
from secure_fedgraph.experiment.schema.part import Epsilon
from secure_fedgraph.experiment.schema.score_verdict import exact_of_too_few
from secure_fedgraph.report import beside
from secure_fedgraph.report import text as words
from secure_fedgraph.report.figures.drawn import Table
from secure_fedgraph.report.figures.plots import MARKERS, WIDTH
from secure_fedgraph.report.figures.svg import MUTED, SERIES, Picture, draw
from secure_fedgraph.report.sections import trained
from secure_fedgraph.report.sections.parts import Story
from secure_fedgraph.report.sections.trained import Source

BASELINES = ("no privacy", "no collaboration")
TITLES = {
    "global": "accuracy on all test data",
    "local": "accuracy, mean over owners",
    "auc": "area under the ROC curve",
    "mae": "mean absolute error",
}
PERSONAL, DOTS, DASHDOT = (0, (4, 2)), (0, (1, 1.6)), (0, (6, 2, 1, 2))
"""Dashes: of personal models, of local training and what leads to no privacy, of the commonest class."""
HEIGHT = 3.5  # inches
DODGE = 0.035
"""How far lines are moved sideways, as a share of the axis, so that their intervals do not overlap."""

LEGEND: dict[str, Any] = {"loc": "outside lower center", "handlelength": 2.6, "columnspacing": 1.5}
LABEL = 25
"""The longest legend label, in characters, for a legend in two columns."""


def compare_story(value: CompareResult) -> Story:
    """Everything that ``compare.html`` prints."""
    config, points = value.config, value.points
    ran = [row for row in points if row.outcome == "ran"]
    unit, best = str(config.get("unit", "client")), set(value.pareto)
    key = _key(ran)
    curve = _curve(ran, key, unit)
    attacks = list(dict.fromkeys(attack for row in ran for attack in row.leak))
    data = words.named(words.DATA, config.get("data", ""))
    told: dict[str, object] = {
        "kind": "compare",
        "title": f"{_subjects(points)} on {data}: accuracy under privacy",
        "measure": {"mae": "error (mean absolute)", "auc": "area under the ROC curve"}.get(key, "accuracy"),
        "command": value.command,
        "owned": trained.owners([config]),
        "source": Source(data),
        "rounds": config.get("rounds"),
        "seed": value.seeds,
        "seconds": value.seconds,
        "accuracy": None,
        "unit": unit,
        "verdicts": _verdicts(ran, key, unit),
        "curve": curve,
        "caption": f"{_title(key)[:1].upper()}{_title(key)[1:]} at each budget for one {unit}",
        "numbers": _numbers(ran, key),
        "every": _every(ran, key, unit, best),
        "worth": [f"{_label(row)}, ε = {float(row.epsilon):g}: {row.worth}" for row in ran if row.worth],
        "has_reference": any(row.without_graph for row in ran),
        "beside": _beside(ran, key),
        "without_graph": beside.without_graph(ran, _algorithm),
        "larger_units": beside.larger_units(ran, _algorithm),
        "refused": [row for row in points if row.outcome == "refused"],
        "failed": [row for row in points if row.outcome == "failed"],
        "unattacked": [row for row in points if row.leak_failed is not None],
        "leaks": _leaks(ran, attacks, unit) if attacks else None,
        "settings": [(k, json.dumps(v)) for k, v in sorted(config.items()) if v not in (None, {}, [])],
        "versions": sorted(value.versions.items()),
        "facts": {"own_version": value.versions.get("secure-fedgraph", "")},
    }
    return Story(told, [curve] if curve else [])


def _subjects(points: Sequence[Point]) -> str:
    compared = (row.algorithm for row in points if row.kind != "no collaboration")
    return words.listed(dict.fromkeys(words.named(words.ALGORITHMS, name) for name in compared))


def _key(ran: Sequence[Point]) -> str:
    scores = ran[0].accuracy.named() if ran else {}
    return next((k for k in ("global", "auc", "mae", "local") if k in scores), "global")


def _score(row: Point | WithoutGraph, key: str) -> float | None:
    scores = row.accuracy.named()
    return scores.get(key, scores.get("local"))


def _title(key: str) -> str:
    return TITLES.get(key, f"{key} score")


def _bound(value: Epsilon | None) -> str:
    """An epsilon in a table; none was asked for where it is None."""
    if value is None:
        return "none"
    return "∞" if value == "inf" or math.isinf(float(value)) else f"{float(value):.4g}"


def _lines(ran: Sequence[Point]) -> dict[tuple[str, str], list[Point]]:
    """(algorithm, policy) -> its points with a budget, by budget."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for row in ran:
        if row.kind == "budget":
            lines.setdefault((row.algorithm, row.policy), []).append(row)
    return {name: sorted(rows, key=lambda r: float(r.epsilon)) for name, rows in lines.items()}


@dataclass(frozen=True)
class _Line:
    """One algorithm under one policy: its points with a budget, and its score without privacy.

    Args:
        label: in the legend.
        look: colour and marker, which its personal models share.
        shift: by which its points stand beside those of others.
        bare: its score without privacy; None where there is none.
    """

    label: str
    rows: list[Point]
    look: dict[str, Any]
    shift: float
    bare: float | None


def _curve(ran: Sequence[Point], key: str, unit: str) -> Picture | None:
    """One picture: shared and personal models over budgets, and what they are measured against."""
    by_name = _lines(ran)
    if not by_name:
        return None
    budgets = sorted({float(row.epsilon) for rows in by_name.values() for row in rows})
    bare = {row.algorithm: _score(row, key) for row in ran if row.kind == "no privacy"}
    step = DODGE * max(math.log(budgets[-1] / budgets[0]), 1.0)
    lines = [
        _Line(
            f"{_algorithm(algorithm)}, {policy}",
            rows,
            {"color": SERIES[i % len(SERIES)], "marker": MARKERS[i % len(MARKERS)]},
            math.exp(step * (i - (len(by_name) - 1) / 2)),
            bare.get(algorithm),
        )
        for i, ((algorithm, policy), rows) in enumerate(by_name.items())
    ]
    across = _across(ran, key)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        end = _end(budgets)
        shown: list[Any] = [_paint_line(axes, line, key, end) for line in lines]
        personal = [line for line in lines if any(_personal(row) is not None for row in line.rows)]
        for line in personal:
            _paint_personal(axes, line)
        if personal:
            shown.append(Line2D([], [], color=MUTED, linestyle=PERSONAL, label="personal (own test data)"))
        for label, score, dash in across:
            shown.append(axes.axhline(score, color=MUTED, linewidth=1.2, linestyle=dash, label=label))
        open_end = any(line.bare is not None for line in lines)
        axes.set_xscale("log")
        axes.set_xticks([*budgets, *[end] * open_end], [*(f"{b:g}" for b in budgets), *["∞"] * open_end])
        axes.minorticks_off()
        axes.set_xlabel(f"ε for one {unit}")
        axes.set_ylabel(_title(key))
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), high if key == "mae" else min(high, 1.0))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        labels = [str(one.get_label()) for one in shown]
        figure.legend(shown, labels, ncols=_columns(labels), **LEGEND)

    points = "; ".join(
        f"{algorithm} under {policy}: "
        + ", ".join(f"{_score(r, key):.3f} at epsilon {float(r.epsilon):g}" for r in rows)
        for (algorithm, policy), rows in by_name.items()
    )
    height = HEIGHT + 0.12 * (len(lines) + len(across))
    return draw("budget-curve", f"{_title(key)} over budgets. {points}.", paint, WIDTH, height)


def _end(budgets: Sequence[float]) -> float:
    """Where scores without privacy stand: as far from the last budget as that is from the one before."""
    return budgets[-1] * (budgets[-1] / budgets[-2] if len(budgets) > 1 else 2.0)


def _paint_line(axes: Axes, line: _Line, key: str, end: float) -> ErrorbarContainer:
    """The shared models with their intervals; thin dots lead on to the score without privacy."""
    places = [float(row.epsilon) * line.shift for row in line.rows]
    middles = [_score(row, key) or 0.0 for row in line.rows]
    spans = [row.interval.get(key) for row in line.rows]
    drawn = axes.errorbar(
        places,
        middles,
        yerr=[
            [m - (s[0] if s else m) for m, s in zip(middles, spans, strict=True)],
            [(s[1] if s else m) - m for m, s in zip(middles, spans, strict=True)],
        ],
        capsize=3 if any(spans) else 0,
        label=line.label,
        **line.look,
    )
    if line.bare is not None:
        onwards = [places[-1], end * line.shift], [middles[-1], line.bare]
        axes.plot(*onwards, **line.look, linestyle=DOTS, linewidth=1.0, markevery=[1])
    return drawn


def _paint_personal(axes: Axes, line: _Line) -> None:
    rows = [row for row in line.rows if _personal(row) is not None]
    axes.plot(
        [float(row.epsilon) * line.shift for row in rows],
        [_personal(row) or 0.0 for row in rows],
        **line.look,
        linestyle=PERSONAL,
        linewidth=1.2,
        markersize=4.5,
        markerfacecolor="none",
    )


def _personal(row: Point) -> float | None:
    return row.accuracy.get("personal")


def _across(ran: Sequence[Point], key: str) -> list[tuple[str, float, Any]]:
    """What does not depend on a budget, as lines across: label, score, dash. Of several, the best one."""
    found: list[tuple[str, float, Any]] = []
    for kind, dash in (("no privacy", "-"), ("no collaboration", DOTS)):
        scores = {s for r in ran if r.kind == kind and (s := _score(r, key)) is not None}
        if scores:
            best = min(scores) if key == "mae" else max(scores)
            found.append((f"{kind}, at best" if len(scores) > 1 else kind, best, dash))
    commonest = next((row.commonest_class for row in ran if row.commonest_class is not None), None)
    if commonest is not None and key in ("global", "local"):
        found.append(("commonest class", commonest, DASHDOT))
    return found


def _columns(labels: Sequence[str]) -> int:
    """Of a legend: two where the picture is wide enough for them."""
    return 2 if max(map(len, labels)) <= LABEL else 1


def _numbers(ran: Sequence[Point], key: str) -> Table:
    rows = []
    for (algorithm, policy), points in _lines(ran).items():
        for row in points:
            span = row.interval.get(key)
            rows.append(
                [
                    f"{algorithm}, {policy}",
                    f"{float(row.epsilon):g}",
                    f"{_score(row, key):.4f}",
                    f"{span[0]:.4f} to {span[1]:.4f}" if span else "one seed",
                ]
            )
    return Table(["line", "ε", "mean", "95 % interval"], rows)


def _every(ran: Sequence[Point], key: str, unit: str, best: set[str]) -> Table:
    rows = []
    for row in ran:
        spread, local = row.std.get(key) if row.seeds > 1 else None, row.accuracy.get("local")
        rows.append(
            [
                _label(row) + (" *" if row.name in best else ""),
                _bound(row.asked),
                _bound(row.spent) + (" (rests on masks)" if row.computational else ""),
                f"{_score(row, key):.4f}" + (f" ± {spread:.4f}" if spread is not None else ""),
                "" if local is None else f"{local:.4f}",
                "" if (own := row.accuracy.get("personal")) is None else f"{own:.4f}",
                words.size(row.bytes),
                words.seconds(row.seconds),
                row.seeds,
            ]
        )
    heads = [
        "point",
        f"budget, ε ({unit})",
        "spent",
        _title(key),
        "mean over owners",
        "personal",
        "bytes up",
        "time",
        "seeds",
    ]
    return Table(heads, rows)


def _beside(ran: Sequence[Point], key: str) -> Table | None:
    """Each budget beside what it is measured against."""
    rows = [row for row in ran if row.kind == "budget"]
    if not rows:
        return None
    alone = next((_score(row, key) for row in ran if row.kind == "no collaboration"), None)
    bare = {row.algorithm: _score(row, key) for row in ran if row.kind == "no privacy"}
    heads = ["point", "ε", "shared model", "same budget, no graph", "no privacy", "alone", "commonest class"]
    heads += ["personal models", "own only"]
    cells = [
        [
            _label(row),
            f"{float(row.epsilon):g}",
            *map(
                _number,
                [
                    _score(row, key),
                    _score(row.without_graph, key) if row.without_graph else None,
                    bare.get(row.algorithm),
                    alone,
                    row.commonest_class,
                    row.accuracy.get("personal"),
                    row.accuracy.get("own"),
                ],
            ),
        ]
        for row in rows
    ]
    kept = [i for i, _ in enumerate(heads) if any(row[i] for row in cells)]
    return Table([heads[i] for i in kept], [[row[i] for i in kept] for row in cells])


def _number(score: float | None) -> str:
    return "" if score is None else f"{score:.4f}"


def _algorithm(name: str) -> str:
    return words.named(words.ALGORITHMS, name)


def _label(row: Point) -> str:
    label = f"{words.named(words.ALGORITHMS, row.algorithm)}, {row.policy}"
    return label + (f" ({row.kind})" if row.kind in BASELINES else "")


def _leaks(ran: Sequence[Point], attacks: Sequence[str], unit: str) -> Table:
    rows = [[_label(row), _bound(row.epsilon), *(_leak(row, attack) for attack in attacks)] for row in ran]
    return Table(["point", f"ε ({unit})", *attacks], rows)


def _leak(row: Point, attack: str) -> str:
    """A score, whether it beats the best trivial guess, and that guess; older files tell the score alone."""
    value, leak = row.leak.get(attack), row.leaks.get(attack)
    if value is None:
        return "not run" if row.leak_failed is None else "failed"
    if not isinstance(value, float):
        return value
    if leak is None:
        return f"{value:.3f}"
    few = (
        "exact, of too few to tell"
        if exact_of_too_few(leak.score, leak.leaks, leak.baseline)
        else "no better"
    )
    return f"{value:.3f} {'leaks' if leak.leaks else few} (guess {leak.baseline:.3f})"


def _worth(row: Point, key: str) -> bool:
    """Whether a row beats local training, beyond the interval of the differences where there is one."""
    gain = row.over_alone.get(key)
    return gain is not None and (gain.interval or [gain.mean])[0] > 0


def _on_own_tests(row: Point, alone: Point, key: str) -> str:
    """The scores on owners' own test data, where local training may be better."""
    mine, alone_score = row.accuracy.get("local"), alone.accuracy.get("local")
    if key == "local" or mine is None or alone_score is None:
        return ""
    return f" On owners' own test data it has {mine:.3f}, and local training {alone_score:.3f}."


def _verdicts(ran: Sequence[Point], key: str, unit: str) -> list[str]:
    """One sentence a line: the smallest budget that is worth more than local training."""
    sentences = []
    alone = [r for r in ran if r.kind == "no collaboration" and _score(r, key) is not None]
    seeds = max((r.seeds for r in ran), default=1)
    how = "seed by seed, beyond the 95 % interval of the difference" if seeds > 1 else "in this one seed"
    for (algorithm, policy), rows in _lines(ran).items():
        name = words.named(words.ALGORITHMS, algorithm)
        no_privacy = (r for r in ran if r.kind == "no privacy" and r.algorithm == algorithm)
        without_privacy = next((_score(r, key) for r in no_privacy), None)
        last = rows[-1]
        text = f"{name} under {policy}: {_score(last, key):.3f} at epsilon {float(last.epsilon):g} "
        text += f"for one {unit}"
        text += f", {without_privacy:.3f} without privacy." if without_privacy is not None else "."
        if alone:
            worth = list(takewhile(lambda r: _worth(r, key), reversed(rows)))
            text += (
                f" From epsilon {float(worth[-1].epsilon):g} on it is worth more than local training "
                if worth
                else " At the largest budget tried it is not worth more than local training "
            ) + f"({_score(alone[0], key):.3f}), {how}."
            text += _on_own_tests(last, alone[0], key)
        sentences.append(text)
    if not ran:
        return ["No point ran: below stands why."]
    return sentences or ["No point has a budget: the table shows each policy as configured."]
