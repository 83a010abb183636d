"""What a page says about learning: accuracy and loss by round, and where they end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from secure_fedgraph.experiment.schema.part import Scores
from secure_fedgraph.experiment.schema.run import RoundReport
from secure_fedgraph.report import text
from secure_fedgraph.report.figures import plots
from secure_fedgraph.report.figures.plots import Curve, Line
from secure_fedgraph.report.figures.svg import Picture
from secure_fedgraph.report.measures import Measure, followed, measure_of
from secure_fedgraph.report.sections.trained import Trained


@dataclass(frozen=True)
class Learning:
    """Learning over the rounds.

    Args:
        title: of the score by round.
        last: title of the score at the end.
        pictures: of the score, and of the loss where there is one.
        table: the numbers by round.
        apart: how far apart the policies are, in a sentence.
        heading: where a page has several of these.
    """

    title: str
    last: str
    pictures: list[Picture]
    table: dict[str, object]
    apart: str
    heading: str = ""


def accuracy(runs: Sequence[Trained], stem: str = "") -> Learning | None:
    """Accuracy and validation loss by round: pictures, numbers, and how far apart the policies are.

    Args:
        stem: behind the pictures' names, where a page has several of them.
    """
    seen = [run for run in runs if any(run.histories)]
    if not seen:
        return None
    last = measure_of(seen[0].results[0])
    head = followed(seen[0].results[0], next(history for history in seen[0].histories if history))
    measures: tuple[tuple[str, str, bool, Callable[[RoundReport], float | None]], ...] = (
        ("accuracy", head.title, head.as_percent, lambda r: r.accuracy.get(head.key)),
        ("loss", "loss on the validation data", False, lambda r: r.loss),
    )
    pictures = []
    several = any(len(history) > 1 for run in seen for history in run.histories)
    for key, title, as_percent, read in measures if several else ():  # one round is no curve
        curves = [Curve(run.label, lines) for run in seen if _any(lines := _lines(run, read))]
        if not curves:  # no validation data: an empty picture says nothing
            continue
        ends = [f"{curve.label} ends at {_end(curve.lines, as_percent)}" for curve in curves]
        alt = f"Line plot of {title} over the rounds: {text.listed(ends)}."
        pictures.append(plots.over_rounds(f"{key}-by-round{stem}", title, curves, as_percent, alt))
    return Learning(head.title, last.title, pictures, _by_round(seen, head), _apart(seen, head))


def finals(runs: Sequence[Trained]) -> list[dict[str, object]]:
    """The last round's accuracy of each policy, with the best rounds beside it, never mixed."""
    rows: list[dict[str, object]] = []
    for run in runs:
        scores = [result.accuracy for result in run.results]
        head = measure_of(run.results[0])
        rows.append(
            {
                "label": run.label,
                "last": head.write(_mean(scores, head.key)),
                "local": text.percent(_mean(scores, "local")),
                "validation": head.write(_mean([s.best_by_validation for s in scores], head.key)),
                "test": head.write(_mean([s.best_on_test for s in scores], head.key)),
                "seconds": text.mean(result.seconds for result in run.results),
            }
        )
    return rows


def _mean(several: Sequence[Scores | None], key: str) -> float | None:
    return text.mean(scores.get(key) for scores in several if scores is not None)


def _lines(run: Trained, read: Callable[[RoundReport], float | None]) -> list[Line]:
    lines = []
    for history in run.histories:
        values = [read(row) for row in history]
        lines.append(
            (
                [float(row.round) for row in history],
                [math.nan if value is None else value for value in values],
            )
        )
    return [line for line in lines if line[0]]


def _any(lines: Sequence[Line]) -> bool:
    return any(not math.isnan(value) for _, values in lines for value in values)


def _end(lines: Sequence[Line], as_percent: bool) -> str:
    value = fmean([values[-1] for _, values in lines])
    return text.percent(value) if as_percent else f"{value:.3f}"


def _by_round(runs: Sequence[Trained], head: Measure) -> dict[str, object]:
    labels, columns = [], []
    for run in runs:
        for result, history in zip(run.results, run.histories, strict=False):
            labels.append(run.label + (f", seed {result.seed}" if len(run.histories) > 1 else ""))
            columns.append({row.round: row for row in history})
    numbers = sorted({number for column in columns for number in column})
    return {
        "columns": labels,
        "rows": [
            {"round": number, "cells": [_numbers(column.get(number), head) for column in columns]}
            for number in numbers
        ],
    }


def _numbers(row: RoundReport | None, head: Measure) -> dict[str, str]:
    """One round of one run; a run that stopped earlier has none."""
    if row is None:
        return {"accuracy": text.MISSING, "loss": text.MISSING}
    loss = text.MISSING if row.loss is None else f"{row.loss:.4f}"
    return {"accuracy": head.write(row.accuracy.get(head.key)), "loss": loss}


def _far(gap: float, head: Measure) -> str:
    return f"{100 * gap:.2f} points" if head.as_percent else f"{gap:.4f}"


def _apart(runs: Sequence[Trained], head: Measure) -> str:
    """How far each policy is from the first, at the round where they differ most."""
    reference = runs[0]
    same: list[str] = []
    other: list[str] = []
    for run in runs[1:]:
        gaps = [
            (abs(a - b), row.round)
            for one, another in zip(reference.histories, run.histories, strict=False)
            for before, row in zip(one, another, strict=False)
            if (a := before.accuracy.get(head.key)) is not None
            and (b := row.accuracy.get(head.key)) is not None
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
