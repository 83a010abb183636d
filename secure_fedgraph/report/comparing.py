"""A comparison's points by line, their scores and their names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from secure_fedgraph.experiment.schema.compare import Point, WithoutGraph
from secure_fedgraph.experiment.schema.part import Epsilon
from secure_fedgraph.report import text

TITLES = {
    "global": "accuracy on all test data",
    "local": "accuracy, mean over owners",
    "auc": "area under the ROC curve",
    "mae": "mean absolute error",
}


def key_of(ran: Sequence[Point]) -> str:
    """The score that a page is about."""
    scores = ran[0].accuracy.named() if ran else {}
    first = ran[0].measure if ran else ""
    return next((k for k in (first, "global", "auc", "mae", "local") if k in scores), "global")


def score_of(row: Point | WithoutGraph, key: str) -> float | None:
    """A point's score; the mean over owners where it lacks the one that is asked for."""
    scores = row.accuracy.named()
    return scores.get(key, scores.get("local"))


def alone_of(ran: Sequence[Point], key: str) -> float | None:
    """What owners score alone: of a comparison's own point for it, or beside the scores of others."""
    own = next((score_of(row, key) for row in ran if row.kind == "no collaboration"), None)
    name = "accuracy" if key == "global" else key
    return own if own is not None else next((row.alone[name] for row in ran if name in row.alone), None)


def beside_it(row: Point, ran: Sequence[Point], key: str) -> dict[str, float | None]:
    """What the score of a point with a budget stands beside, by name; None where there is none."""
    bare = (one for one in ran if one.kind == "no privacy" and one.algorithm == row.algorithm)
    return {
        "same budget, no graph": score_of(row.without_graph, key) if row.without_graph else None,
        "no privacy": next((score_of(one, key) for one in bare), None),
        "alone": alone_of(ran, key),
        "commonest class": row.commonest_class if key in ("accuracy", "global", "local") else None,
        "personal models": row.accuracy.get("personal"),
        "own only": row.accuracy.get("own"),
    }


def title_of(key: str) -> str:
    """A score in words."""
    return TITLES.get(key, f"{key} score")


def name_of(algorithm: str) -> str:
    """An algorithm, for people."""
    return text.named(text.ALGORITHMS, algorithm)


def bound(value: Epsilon | None) -> str:
    """An epsilon in a table; none was asked for where it is None.

    >>> bound(None), bound("inf"), bound(2.0)
    ('none', '∞', '2')
    """
    if value is None:
        return "none"
    return "∞" if value == "inf" or math.isinf(float(value)) else f"{float(value):.4g}"


def lines_of(ran: Sequence[Point]) -> dict[tuple[str, str], list[Point]]:
    """(algorithm, policy) -> its points with a budget, by budget."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for row in ran:
        if row.kind == "budget":
            lines.setdefault((row.algorithm, row.policy), []).append(row)
    return {name: sorted(rows, key=lambda r: float(r.epsilon)) for name, rows in lines.items()}
