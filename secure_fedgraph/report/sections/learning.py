"""What a page says about learning: accuracy and loss by round, and where they end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from secure_fedgraph.report import text
from secure_fedgraph.report.figures import plots
from secure_fedgraph.report.measures import Measure, measure_of
from secure_fedgraph.report.sections.trained import Trained, at, mean

Line = tuple[list[float], list[float]]


def accuracy(runs: Sequence[Trained], stem: str = "") -> dict[str, Any] | None:
    """Accuracy and validation loss by round: pictures, numbers, and how far apart the policies are.

    Args:
        stem: behind the pictures' names, where a page has several of them.
    """
    seen = [run for run in runs if any(run.histories)]
    if not seen:
        return None
    head = _measure(seen)
    measures: tuple[tuple[str, str, bool, Callable[[dict[str, Any]], Any]], ...] = (
        ("accuracy", head.title, head.as_percent, lambda r: at(r, "accuracy", head.key)),
        ("loss", "loss on the validation data", False, lambda r: r.get("loss")),
    )
    pictures = []
    for key, title, as_percent, read in measures:
        drawn = [(run.label, lines) for run in seen if _any(lines := _lines(run, read))]
        if not drawn:  # no validation data: an empty picture says nothing
            continue
        curves = [{"label": label, "lines": lines} for label, lines in drawn]
        ends = [f"{label} ends at {_end(lines, as_percent)}" for label, lines in drawn]
        alt = f"Line plot of {title} over the rounds: {text.listed(ends)}."
        pictures.append(plots.over_rounds(f"{key}-by-round{stem}", title, curves, as_percent, alt))
    return {
        "title": head.title,
        "pictures": pictures,
        "table": _by_round(seen, head),
        "apart": _apart(seen, head),
    }


def finals(runs: Sequence[Trained]) -> list[dict[str, Any]]:
    """The last round's accuracy of each policy, with the best rounds beside it, never mixed."""
    rows = []
    for run in runs:
        accuracies = [r.get("accuracy") or {} for r in run.results]
        head = _measure([run])
        rows.append(
            {
                "label": run.label,
                "last": head.write(mean([a.get(head.key) for a in accuracies])),
                "local": text.percent(mean([a.get("local") for a in accuracies])),
                "validation": head.write(mean([at(a, "best_by_validation", head.key) for a in accuracies])),
                "test": head.write(mean([at(a, "best_on_test", head.key) for a in accuracies])),
                "seconds": mean([r.get("seconds") for r in run.results]),
                "seeds": len(accuracies),
            }
        )
    return rows


def _lines(run: Trained, read: Callable[[dict[str, Any]], Any]) -> list[Line]:
    lines = []
    for history in run.histories:
        values = [text.real(read(row)) for row in history]
        lines.append(
            (
                [float(row.get("round", i + 1)) for i, row in enumerate(history)],
                [math.nan if v is None else v for v in values],
            )
        )
    return [line for line in lines if line[0]]


def _any(lines: Sequence[Line]) -> bool:
    return any(not math.isnan(value) for _, values in lines for value in values)


def _end(lines: Sequence[Line], as_percent: bool) -> str:
    value = fmean([values[-1] for _, values in lines])
    return text.percent(value) if as_percent else f"{value:.3f}"


def _measure(runs: Sequence[Trained]) -> Measure:
    return measure_of(next((result for run in runs for result in run.results), {}))


def _by_round(runs: Sequence[Trained], head: Measure) -> dict[str, Any]:
    columns: list[dict[str, Any]] = [
        {
            "label": run.label + (f", seed {result.get('seed')}" if len(run.histories) > 1 else ""),
            "rows": {row.get("round"): row for row in history},
        }
        for run in runs
        for result, history in zip(run.results, run.histories, strict=False)
    ]
    numbers = sorted({n for c in columns for n in c["rows"] if n is not None})
    return {
        "columns": [c["label"] for c in columns],
        "rows": [
            {
                "round": n,
                "cells": [
                    {
                        "accuracy": head.write(at(c["rows"].get(n) or {}, "accuracy", head.key)),
                        "loss": _loss((c["rows"].get(n) or {}).get("loss")),
                    }
                    for c in columns
                ],
            }
            for n in numbers
        ],
    }


def _far(gap: float, head: Measure) -> str:
    return f"{100 * gap:.2f} points" if head.as_percent else f"{gap:.4f}"


def _loss(value: Any) -> str:
    number = text.real(value)
    return text.MISSING if number is None else f"{number:.4f}"


def _apart(runs: Sequence[Trained], head: Measure) -> str:
    """How far each policy is from the first, at the round where they differ most."""
    reference = runs[0]
    same: list[str] = []
    other: list[str] = []
    for run in runs[1:]:
        gaps = [
            (abs(a - b), row.get("round"))
            for one, another in zip(reference.histories, run.histories, strict=False)
            for before, row in zip(one, another, strict=False)
            if (a := text.real(at(before, "accuracy", head.key))) is not None
            and (b := text.real(at(row, "accuracy", head.key))) is not None
        ]
        if gaps:
            gap, when = max(gaps, key=lambda pair: pair[0])
            if gap < 5e-5:
                same.append(run.label)
            else:
                other.append(f"{run.label} differs by at most {_far(gap, head)} (in round {when})")
    if same:
        other.insert(
            0, f"{text.listed(same)} {'score' if len(same) > 1 else 'scores'} the same in every round"
        )
    return f"Beside {reference.label}, {'; '.join(other)}." if other else ""
