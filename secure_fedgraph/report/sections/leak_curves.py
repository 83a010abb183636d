"""How far an attack gets: its score over the setting that decides it, a line for each adversary and aim."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from secure_fedgraph.report import text
from secure_fedgraph.report.figures import plots

KEY = "training.exchange_batch"


def leak_curves(cells: Sequence[dict[str, Any]], policies: Sequence[str]) -> list[dict[str, Any]]:
    """One section with a picture for each policy, or none where no cell names the setting.

    Returns:
        sections as :func:`secure_fedgraph.report.sections.reconstructed.reconstructed` makes them.
    """
    scored = [c for c in cells if _at(c) is not None and text.real(c.get("score")) is not None]
    section: dict[str, Any] = {"pictures": [], "captions": [], "tables": []}
    for policy in policies:
        curves = _curves([c for c in scored if c.get("policy") == policy])
        if not curves:
            continue
        places = sorted({at for curve in curves for at in curve["scores"]})
        rows = [[c["label"], *(text.share(c["scores"].get(at)) for at in places)] for c in curves]
        heads = ["attack, adversary, about", *(f"batch {at:g}" for at in places)]
        alt = "; ".join(f"{row[0]}: {text.listed(row[1:])}" for row in rows)
        alt = (
            f"{policy}: share of rows exact at exchange batch {text.listed(f'{p:g}' for p in places)}. {alt}"
        )
        stem = "reach-" + (re.sub(r"[^A-Za-z0-9_]+", "-", policy).strip("-") or "x")
        section["pictures"].append(plots.leak_curves(stem, curves, places, alt))
        section["captions"].append(f"{policy}: share of the rows asked for that were recovered in every word")
        section["tables"].append({"heads": heads, "rows": rows})
    if not section["pictures"]:
        return []
    seed = scored[0].get("seed") if len({c.get("seed") for c in scored}) == 1 else None
    about = {"attack": "", "code": "C1, C2", "subject": "exact rows by exchange batch", "kind": "reach"}
    return [{**about, "seed": seed, **section}]


def _curves(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    by_label: dict[str, dict[float, list[float]]] = {}
    for cell in cells:
        settings = cell.get("settings") or {}
        code, *rest = str(cell.get("attack")).split("-")
        about = "one owner" if settings.get("aim") == "each owner" else "the sum"
        who = {"server": "server", "client": "asking owner"}.get(str(cell.get("adversary")), "other")
        label = f"{code.upper()}{' columns' if 'columns' in rest else ''}, {who}, {about}"
        at, score = _at(cell), text.real(cell.get("score"))
        if at is not None and score is not None:
            by_label.setdefault(label, {}).setdefault(at, []).append(score)
    return [
        {"label": label, "scores": {at: fmean(values) for at, values in sorted(scores.items())}}
        for label, scores in by_label.items()
    ]


def _at(cell: dict[str, Any]) -> float | None:
    return text.real((cell.get("settings") or {}).get(KEY))
