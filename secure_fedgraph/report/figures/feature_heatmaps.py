"""Recovered rows as heat strips: what was there, what was guessed, and how far they are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from pydantic import JsonValue

from secure_fedgraph.experiment.schema.audit import Reconstruction
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.plots import WIDTH
from secure_fedgraph.report.figures.svg import GUESS, LEAK, RULE, SERIES, Picture, draw
from secure_fedgraph.report.grouping import alike, beside, by_place, stem

MOST_ROWS, MOST_COLUMNS, MOST_LISTED, SHADES = 3, 48, 8, 8


@dataclass(frozen=True)
class Row:
    """A row of numbers, as it was and as it was guessed.

    Args:
        label: whose it is.
        whole_true, whole_guess: all of its values.
        columns: the places of those that are drawn.
    """

    label: str
    whole_true: np.ndarray
    whole_guess: np.ndarray
    columns: np.ndarray

    @property
    def true(self) -> np.ndarray:
        """As drawn."""
        return np.take(self.whole_true, self.columns)

    @property
    def guess(self) -> np.ndarray:
        """As drawn."""
        return np.take(self.whole_guess, self.columns)


def feature_heatmaps(code: str, guesses: Sequence[Reconstruction]) -> list[Drawn]:
    """A picture for each policy, adversary and aim, as configured, or in the first control where not run.

    Policies under which the attack wrote down the same, as far as a picture shows it, share one.
    """
    drawn = []
    records = by_place(guesses, lambda record: bool(rows_of(record)))
    for group in alike(records, _same):
        rows, policies = rows_of(group.record), group.policies
        who = text.named(text.ADVERSARIES, group.record.adversary)
        caption = f"{text.listed(policies)}: what {who} wrote down{beside(group)}"
        cosines = "; ".join(f"{row.label}: cosine {_cosine(row):.3f}" for row in rows)
        name = stem(code, policies[0], group.record)
        drawn.append(Drawn(heat_strips(name, rows, f"{caption}. {cosines}."), caption, _table(rows)))
    return drawn


def _same(one: Reconstruction, other: Reconstruction) -> bool:
    mine, theirs = rows_of(one), rows_of(other)
    return len(mine) == len(theirs) and all(
        a.label == b.label and _near(a.whole_true, b.whole_true) and _near(a.whole_guess, b.whole_guess)
        for a, b in zip(mine, theirs, strict=True)
    )


def _near(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether a picture shows no difference."""
    return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=0.01 * float(np.abs(one).max()))


def rows_of(record: Reconstruction) -> list[Row]:
    """The first rows of each target in turn, as long as true and guessed have the same shape.

    Of wide rows those columns are kept where either is largest, in their order: most words are in no row.
    """
    rows: list[Row] = []
    targets = [(t.owner, _matrix(t.true), _matrix(t.guess)) for t in record.targets]
    for rank in range(MOST_ROWS):
        for owner, true, guess in targets:
            if true.shape == guess.shape and rank < len(true) and true.shape[1] > 1:
                several = len(true) > 1
                rows.append(_kept(f"{owner}, row {rank + 1}" if several else owner, true[rank], guess[rank]))
    return rows[:MOST_ROWS]


def heat_strips(name: str, rows: Sequence[Row], alt: str) -> Picture:
    """Three strips a row: true, guessed, apart. The fuller a cell, the larger its value."""

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
        for axes, row in zip(panels, rows, strict=True):
            top = float(np.abs([row.true, row.guess]).max()) or 1.0
            for at, values in enumerate((row.true, row.guess)):
                _strip(axes, values / top, 2 - at, SERIES[0], GUESS)
            _strip(axes, np.abs(row.true - row.guess) / top, 0, LEAK, LEAK)
            axes.set_yticks([2.4, 1.4, 0.4], ["true", "guessed", "apart"])
            axes.set_xlim(0, len(row.true))
            axes.set_ylim(0, 3)
            axes.set_xticks([])
            axes.tick_params(length=0)
            axes.spines[["left", "bottom"]].set_visible(False)
            axes.set_title(f"{row.label}: cosine {_cosine(row):.3f}", fontweight="bold")
        shown, of = len(rows[0].true), len(rows[0].whole_true)
        which = f"all {of}" if shown == of else f"the {shown} largest of {of:,}"
        panels[-1].set_xlabel(f"{which} values; blue: above 0, orange: below")

    return draw(name, alt, paint, WIDTH, 0.5 + 0.95 * len(rows))


def _strip(axes: Axes, values: np.ndarray, bottom: float, above: str, below: str) -> None:
    """One shape for all cells of a shade: a few shapes are a small page."""
    shades = np.ceil(np.clip(np.abs(values), 0, 1) * SHADES - 1e-6).astype(int)
    axes.plot([0, len(values)], [bottom - 0.02] * 2, color=RULE, linewidth=0.7)
    for colour, chosen in ((above, values > 0), (below, values < 0)):
        for shade in np.unique(shades[chosen & (shades > 0)]):
            left = np.flatnonzero(chosen & (shades == shade)).astype(float)
            cells = [
                Path(
                    np.array(
                        [[x, bottom], [x + 1, bottom], [x + 1, bottom + 0.8], [x, bottom + 0.8], [x, bottom]]
                    )
                )
                for x in left
            ]
            shape = Path.make_compound_path(*cells)
            axes.add_patch(PathPatch(shape, facecolor=colour, alpha=shade / SHADES, linewidth=0))


def _table(rows: Sequence[Row]) -> Table:
    """The first of the values that are drawn, by their place in the whole row."""
    table = [
        [row.label, f"{column + 1:,}", f"{true:.3g}", f"{guess:.3g}"]
        for row in rows
        for column, true, guess in list(zip(row.columns, row.true, row.guess, strict=True))[:MOST_LISTED]
    ]
    return Table(["row", "value", "true", "guessed"], table)


def _kept(label: str, true: np.ndarray, guess: np.ndarray) -> Row:
    size = np.maximum(np.abs(true), np.abs(guess))
    return Row(label, true, guess, np.sort(np.argsort(-size, kind="stable")[:MOST_COLUMNS]))


def _cosine(row: Row) -> float:
    """Over all values, drawn or not."""
    true, guess = row.whole_true, row.whole_guess
    return float(true @ guess / max(np.linalg.norm(true) * np.linalg.norm(guess), 1e-12))


def _matrix(values: JsonValue) -> np.ndarray:
    """Rows of numbers, what is missing as zero; of anything else, no rows."""
    try:
        rows = np.atleast_2d(np.array(values, dtype=float))
    except (TypeError, ValueError):
        return np.zeros((0, 0))
    return np.nan_to_num(rows) if rows.ndim == 2 else np.zeros((0, 0))
