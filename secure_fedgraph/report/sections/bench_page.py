"""The board: every row of one or several ``bench.json``, and accuracy, epsilon and leak in one picture."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.text import printable
from secure_fedgraph.experiment.schema.bench import BenchResult, Row
from secure_fedgraph.report import text as words
from secure_fedgraph.report.comparing import alone_of, bound, key_of, score_of
from secure_fedgraph.report.figures.drawn import Table
from secure_fedgraph.report.figures.plots import MARKERS, WIDTH
from secure_fedgraph.report.figures.svg import MUTED, SERIES, Picture, draw
from secure_fedgraph.report.sections.parts import Story

HEADS = ("task", "algorithm", "budget", "score", "alone", "spent", "leak", "by", "bytes up", "CPU", "file")
NUMBERS = (3, 4, 6, 8, 9)
"""Columns of numbers."""
SHOWN, PANELS = 60, 12
"""Letters of a name; tasks in the picture."""
SCRIPT = (Path(__file__).parents[1] / "templates" / "sort.js").read_text(encoding="utf-8").strip()


Cell = tuple[str, float | str]
"""What a cell shows, and by what it is sorted."""
Submitted = Sequence[tuple[str, BenchResult]]


def bench_story(value: BenchResult) -> Story:
    """The page of one file."""
    return board_story([("bench.json", value)])


def board_story(submitted: Submitted) -> Story:
    """Everything that ``bench.html`` prints.

    Raises:
        BadInput: for files of different suites.
    """
    if len(suites := {one.suite for _, one in submitted}) > 1:
        raise BadInput(
            f"files of {len(suites)} suites, and a board compares results of one: leave others out"
        )
    rows = [(name, row) for name, one in submitted for row in one.points]
    ran = [(name, row) for name, row in rows if row.outcome == "ran"]
    tasks = [(name, task) for name, one in submitted for task in one.tasks]
    told_of: list[tuple[str, Any, str]] = [
        *((*one, f"{one[1].name} {one[1].outcome if one[1].reason else 'attacks failed'}: ") for one in rows),
        *((*one, "left out: ") for one in tasks),
    ]
    notes = [
        f"{one.task}, {one.partition}: {text}{why} ({name})"
        for name, one, text in told_of
        if (why := one.reason or getattr(one, "leak_failed", None))
    ]
    picture = _picture([row for _, row in ran])
    files = [
        (name, "quick" if one.quick else "whole", one.code, one.versions.get("torch", ""), one.command)
        for name, one in submitted
    ]
    data = [(one.title, one.partition, one.data, one.digest) for _, one in tasks if not one.reason]
    told: dict[str, object] = {
        "kind": "bench",
        "title": "The board: accuracy, privacy and leaks on one suite",
        "lead": f"{len(ran)} rows, from {len(submitted)} file{'s' * (len(submitted) > 1)}",
        "picture": picture,
        "heads": HEADS,
        "numbers": NUMBERS,
        "rows": [cells(name, row) for name, row in ran],
        "notes": [printable(note, 400) for note in notes],
        "submitted": Table(["file", "suite", "code", "torch", "command"], files),
        "data": Table(["task", "partition", "data", "digest"], list(dict.fromkeys(data))),
        "script": SCRIPT,
        "script_hash": base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode(),
    }
    return Story(told, [picture] if picture else [])


def cells(name: str, row: Row) -> list[Cell]:
    """A row that ran, under :data:`HEADS`."""
    key = key_of([row])
    readers = row.readers.get(row.unit) or {"": row.spent}
    spent = words.grouped((bound(epsilon), one) for one, epsilon in readers.items())
    leak, attack = _leak(row)
    return [
        *((printable(one, SHOWN), one) for one in (f"{row.task}, {row.partition}", row.algorithm)),
        (f"{row.unit}: {_budget(row)}", 1e308 if row.budget is None else row.budget),
        _score(row, key),
        _number(alone_of([row], key)),
        (
            "; ".join(one if len(spent) == 1 else f"{one} {', '.join(who)}" for one, who in spent.items()),
            min(float(row.spent), 1e308),
        ),
        _number(None if leak is None else max(leak, 0.0)),
        (attack, attack),
        (words.size(row.bytes), row.bytes),
        ("" if row.cpu is None else words.seconds(row.cpu), row.cpu or 0.0),
        (Path(name).parent.name or name, name),
    ]


def _budget(row: Row) -> str:
    return "∞" if row.budget is None else f"{row.budget:g}"


def _short(key: str) -> str:
    return "accuracy" if key == "global" else key


def _score(row: Row, key: str) -> Cell:
    shown, order = _number(score_of(row, key))
    std = row.std.get(key) if row.seeds > 1 else None
    return f"{shown}{'' if std is None else f' ± {std:.3f}'} {_short(key)}", order


def _number(value: float | None) -> Cell:
    return ("", -1e308) if value is None else (f"{value:.3f}", value)


def _leak(row: Row) -> tuple[float | None, str]:
    """How far the best attack is above its best trivial guess, and which one, or why there is none."""
    over = {name: one.score - one.baseline for name, one in row.leaks.items()}
    if not over:
        return None, "failed" if row.leak_failed else "nothing to read" if row.leak else "none fits"
    attack = max(over, key=over.__getitem__)
    return over[attack], printable(attack, SHOWN) + " (leaks)" * row.leaks[attack].leaks


def _picture(ran: Sequence[Row]) -> Picture | None:
    """A panel a task and partition: score by epsilon, a colour and a mark an algorithm, its size the leak."""
    panels: dict[str, list[Row]] = {}
    for row in ran:
        panels.setdefault(printable(f"{row.task}, {row.partition}", SHOWN), []).append(row)
    shown = list(panels.items())[:PANELS]
    names = list(dict.fromkeys(row.algorithm for _, rows in shown for row in rows))
    looks: dict[str, Any] = {
        name: {"edgecolors": SERIES[i % len(SERIES)], "marker": MARKERS[i % len(MARKERS)]}
        for i, name in enumerate(names)
    }

    def paint(figure: Figure) -> None:
        for number, (title, rows) in enumerate(shown, 1):
            axes, key = figure.add_subplot(math.ceil(len(shown) / 2), 2, number), key_of(rows)
            budgets = list(dict.fromkeys(map(_budget, sorted(rows, key=lambda row: row.budget or math.inf))))
            for row in rows:
                leak, look, at = _leak(row)[0], looks[row.algorithm], budgets.index(_budget(row))
                size, fill = 30 + 300 * min(max(leak or 0.0, 0.0), 1.0), look["edgecolors"]
                axes.scatter(
                    [at], [score_of(row, key) or 0.0], s=size, c=fill if leak is not None else "none", **look
                )
            if (alone := alone_of(rows, key)) is not None:
                axes.axhline(alone, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
            axes.set(title=title, ylabel=_short(key), xlim=(-0.5, len(budgets) - 0.5))
            middle, half = (
                sum(axes.get_ylim()) / 2,
                max(0.05, 0.7 * (axes.get_ylim()[1] - axes.get_ylim()[0])),
            )
            axes.set_ylim(middle - half, middle + half)
            axes.set_xticks(range(len(budgets)), budgets)
        for name, look in list(looks.items())[:PANELS]:
            axes.scatter([], [], s=30, c=look["edgecolors"], label=printable(name, SHOWN), **look)
        figure.legend(loc="outside lower center", ncols=3)

    alt = (
        f"Scores by epsilon of {len(names)} algorithms in {len(shown)} panels, sized by leak, as in the table"
    )
    return draw("board", alt, paint, 1.6 * WIDTH, 1.2 * len(shown) + 1.6) if shown else None
