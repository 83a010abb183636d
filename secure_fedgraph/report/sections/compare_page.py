"""What the page of a comparison says: accuracy over budgets, every point, what leaks."""

from __future__ import annotations

from collections.abc import Sequence

from secure_fedgraph.experiment.schema import CompareResult
from secure_fedgraph.experiment.schema.compare import Point
from secure_fedgraph.experiment.schema.run import DataFacts
from secure_fedgraph.experiment.schema.score_verdict import exact_of_too_few
from secure_fedgraph.report import text as words
from secure_fedgraph.report.comparing import beside_it, bound, key_of, name_of, score_of, title_of
from secure_fedgraph.report.figures.drawn import Table
from secure_fedgraph.report.first_screens.comparison import compare_opening
from secure_fedgraph.report.left_out import left_out_of
from secure_fedgraph.report.sections import trained
from secure_fedgraph.report.sections.parts import Story

BASELINES = ("no privacy", "no collaboration")


def compare_story(value: CompareResult) -> Story:
    """Everything that ``compare.html`` prints."""
    config, points = value.config, value.points
    ran = [row for row in points if row.outcome == "ran"]
    unit, best = str(config.get("unit", "client")), set(value.pareto)
    key = key_of(ran)
    opening = compare_opening(ran, key, unit, words.real(config.get("delta")))
    attacks = list(dict.fromkeys(attack for row in ran for attack in row.leak))
    data = words.named(words.DATA, config.get("data", ""))
    told: dict[str, object] = {
        "kind": "compare",
        "title": f"{_subjects(points)} on {data}: accuracy under privacy",
        "command": value.command,
        "owned": trained.owners([config]),
        "source": DataFacts(data=data),
        "rounds": config.get("rounds"),
        "seed": value.seeds,
        "seconds": value.seconds,
        "accuracy": None,
        "unit": unit,
        "opening": opening,
        "every": _every(ran, key, unit, best),
        "worth": [f"{_label(row)}, ε = {float(row.epsilon):g}: {row.worth}" for row in ran if row.worth],
        "has_reference": any(row.without_graph for row in ran),
        "beside": _beside(ran, key),
        "without_graph": _without_graph(ran),
        "larger_units": _larger_units(ran),
        "left_out": left_out_of(ran),
        "refused": [row for row in points if row.outcome == "refused"],
        "failed": [row for row in points if row.outcome == "failed"],
        "unattacked": [row for row in points if row.leak_failed is not None],
        "leaks": _leaks(ran, attacks, unit) if attacks else None,
        "facts": trained.facts(config, value.versions),
    }
    return Story(told, [opening.curve] if opening.curve else [])


def _subjects(points: Sequence[Point]) -> str:
    compared = (row.algorithm for row in points if row.kind != "no collaboration")
    return words.listed(dict.fromkeys(words.named(words.ALGORITHMS, name) for name in compared))


def _every(ran: Sequence[Point], key: str, unit: str, best: set[str]) -> Table:
    rows = []
    for row in ran:
        spread, local = row.std.get(key) if row.seeds > 1 else None, row.accuracy.get("local")
        rows.append(
            [
                _label(row) + (" *" if row.name in best else ""),
                bound(row.asked),
                bound(row.spent) + (" (rests on masks)" if row.computational else ""),
                f"{score_of(row, key):.4f}" + (f" ± {spread:.4f}" if spread is not None else ""),
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
        title_of(key),
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
    beside_each = [beside_it(row, ran, key) for row in rows]
    heads = ["point", "ε", "shared model", *beside_each[0]]
    cells = [
        [_label(row), f"{float(row.epsilon):g}", *map(_number, [score_of(row, key), *others.values()])]
        for row, others in zip(rows, beside_each, strict=True)
    ]
    kept = [i for i, _ in enumerate(heads) if any(row[i] for row in cells)]
    return Table([heads[i] for i in kept], [[row[i] for i in kept] for row in cells])


def _number(score: float | None) -> str:
    return "" if score is None else f"{score:.4f}"


def _label(row: Point) -> str:
    label = f"{words.named(words.ALGORITHMS, row.algorithm)}, {row.policy}"
    return label + (f" ({row.kind})" if row.kind in BASELINES else "")


def _leaks(ran: Sequence[Point], attacks: Sequence[str], unit: str) -> Table:
    rows = [[_label(row), bound(row.epsilon), *(_leak(row, attack) for attack in attacks)] for row in ran]
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


def _without_graph(points: Sequence[Point]) -> list[str]:
    """Whose score without a graph stands beside which algorithms, and why others have none."""
    of_another: list[tuple[str, str]] = []
    for row in points:
        found, line = row.without_graph, f"{name_of(row.algorithm)} under policy {row.policy}"
        if found is not None and found.reason:
            of_another.append((f"there is none: {found.reason.removesuffix('.')}", line))
        elif found is not None and found.algorithm != row.algorithm:
            why = f"that of {name_of(found.algorithm)}, for it cannot do without links itself"
            of_another.append((why, line))
    return [f"for {words.listed(lines)} {key}." for key, lines in words.grouped(of_another).items()]


def _larger_units(points: Sequence[Point]) -> list[str]:
    """Why another unit's epsilon is larger than the budget's: of each line the last point that ran."""
    last = {(row.algorithm, row.policy): row for row in points if row.larger_units}
    told = words.grouped(
        (why, f"{name_of(row.algorithm)} under policy {row.policy}{budget}")
        for row in last.values()
        for budget in ["" if row.budget is None else f" at epsilon {row.budget:g}"]
        for why in row.larger_units
    )
    return [f"{words.listed(lines)}: {why}" for why, lines in told.items()]
