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
from secure_fedgraph.report.measures import Measure, decimals, followed, measure_of
from secure_fedgraph.report.sections.trained import Trained


@dataclass(frozen=True)
class Learning:
    """Learning over the rounds.

    Args:
        title: of the score by round.
        last: title of the score at the end.
        pictures: of the score, and of the loss where there is one.
        heads, rows: the numbers by round.
    """

    title: str
    last: str
    pictures: list[Picture]
    heads: list[str]
    rows: list[list[object]]


def accuracy(runs: Sequence[Trained]) -> Learning | None:
    """Accuracy and validation loss by round: pictures and numbers."""
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
        drawn = [Curve(run.label, _lines(run, read)) for run in seen]
        curves = [one for one in drawn if not all(math.isnan(v) for _, values in one.lines for v in values)]
        if not curves:  # no validation data: an empty picture says nothing
            continue
        ends = [f"{curve.label} ends at {_end(curve.lines, as_percent)}" for curve in curves]
        alt = f"Line plot of {title} over the rounds: {text.listed(ends)}."
        pictures.append(plots.over_rounds(f"{key}-by-round", title, curves, as_percent, alt))
    return Learning(head.title, last.title, pictures, *_by_round(seen, head))


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


def _end(lines: Sequence[Line], as_percent: bool) -> str:
    value = fmean([values[-1] for _, values in lines])
    return text.percent(value) if as_percent else f"{value:.3f}"


def _by_round(runs: Sequence[Trained], head: Measure) -> tuple[list[str], list[list[object]]]:
    """Heads and rows: accuracy and loss of each run; one that stopped earlier has none."""
    heads, columns = ["round"], []
    for run in runs:
        for result, history in zip(run.results, run.histories, strict=False):
            label = run.label + (f", seed {result.seed}" if len(run.histories) > 1 else "")
            heads += [f"{label}: accuracy", f"{label}: loss"]
            columns.append({row.round: row for row in history})
    rows: list[list[object]] = []
    for number in sorted({number for column in columns for number in column}):
        row: list[object] = [number]
        for one in (column.get(number) for column in columns):
            row.append(text.MISSING if one is None else head.write(one.accuracy.get(head.key)))
            row.append(text.MISSING if one is None else decimals(one.loss, 4))
        rows.append(row)
    return heads, rows
