"""What stands beside a comparison's budgets, in words: scores without a graph, epsilons of other units."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from secure_fedgraph.experiment.schema.compare import Point
from secure_fedgraph.report import text

Named = Callable[[str], str]
"""An algorithm's name, as a table or a page prints it."""


def without_graph(points: Iterable[Point], named: Named = str) -> list[str]:
    """Whose score without a graph stands beside which algorithms, and why others have none."""
    of_another: dict[str, list[str]] = {}
    for row in points:
        found = row.without_graph
        if found is None:
            continue
        line = f"{named(row.algorithm)} under policy {row.policy}"
        if found.reason:
            key = f"there is none: {found.reason.removesuffix('.')}"
        elif found.algorithm != row.algorithm:
            key = f"that of {named(found.algorithm)}, for it cannot do without links itself"
        else:
            continue
        lines = of_another.setdefault(key, [])
        if line not in lines:
            lines.append(line)
    return [f"for {text.listed(lines)} {key}." for key, lines in of_another.items()]


def larger_units(points: Iterable[Point], named: Named = str) -> list[str]:
    """Why another unit's epsilon is larger than the budget's: of each line the last point that ran."""
    last = {(row.algorithm, row.policy): row for row in points if row.larger_units}
    told: dict[str, list[str]] = {}
    for (algorithm, policy), row in last.items():
        for why in row.larger_units:
            budget = "" if row.budget is None else f" at epsilon {row.budget:g}"
            told.setdefault(why, []).append(f"{named(algorithm)} under policy {policy}{budget}")
    return [f"{text.listed(lines)}: {why}" for why, lines in told.items()]
