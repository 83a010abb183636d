"""How far an attack gets: its score over the setting that decides it, a line for each adversary and aim."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from secure_fedgraph.experiment.schema.audit import Cell
from secure_fedgraph.report import text
from secure_fedgraph.report.figures import plots
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.plots import Reach
from secure_fedgraph.report.grouping import file_stem
from secure_fedgraph.report.sections.parts import Section

KEY = "training.exchange_batch"


def leak_curves(cells: Sequence[Cell], policies: Sequence[str]) -> list[Section]:
    """One section with a picture for each policy, or none where no cell names the setting."""
    scored = [c for c in cells if _at(c) is not None and c.score is not None]
    drawn = []
    for policy in policies:
        if curves := _curves([c for c in scored if c.policy == policy]):
            drawn.append(_drawn(policy, curves))
    if not drawn:
        return []
    seeds = {c.seed for c in scored}
    return [
        Section("C1, C2", "exact rows by exchange batch", seeds.pop() if len(seeds) == 1 else None, drawn)
    ]


def _drawn(policy: str, curves: Sequence[Reach]) -> Drawn:
    places = sorted({at for curve in curves for at in curve.scores})
    rows = [[curve.label, *(text.share(curve.scores.get(at)) for at in places)] for curve in curves]
    alt = "; ".join(f"{row[0]}: {text.listed(row[1:])}" for row in rows)
    alt = f"{policy}: share of rows exact at exchange batch {text.listed(f'{p:g}' for p in places)}. {alt}"
    return Drawn(
        plots.leak_curves(file_stem("reach", policy), curves, places, alt),
        f"{policy}: share of the rows asked for that were recovered in every word",
        Table(["attack, adversary, about", *(f"batch {at:g}" for at in places)], rows),
    )


def _curves(cells: Sequence[Cell]) -> list[Reach]:
    by_label: dict[str, dict[float, list[float]]] = {}
    for cell in cells:
        code, *rest = cell.attack.split("-")
        about = "one owner" if cell.settings.aim == "each owner" else "the sum"
        who = {"server": "server", "client": "asking owner"}.get(cell.adversary, "other")
        label = f"{code.upper()}{' columns' if 'columns' in rest else ''}, {who}, {about}"
        at = _at(cell)
        if at is not None and cell.score is not None:
            by_label.setdefault(label, {}).setdefault(at, []).append(cell.score)
    return [
        Reach(label, {at: fmean(values) for at, values in sorted(scores.items())})
        for label, scores in by_label.items()
    ]


def _at(cell: Cell) -> float | None:
    return text.real(cell.settings.others().get(KEY))
