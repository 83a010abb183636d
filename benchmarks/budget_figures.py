"""Writes the table of ``docs/budgets.md`` of algorithms made for budgets, from the figures of finished runs.

    python benchmarks/budget_figures.py [--keep runs/budgets] [--first 10] [--check]

``--keep`` reads what ``budgets.py --first 10`` finished and leaves the means in
``benchmarks/results/budgets.json``, curve by curve, with the seeds, standard errors, versions of packages and
a digest of the code. Call it from the checkout that made the runs. ``--check`` changes nothing and ends with
status 1 where the table is not what that file makes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from budgets import BUDGETS, CURVES, finished, points
from written_pages import keep, line, options, short, write_part

from secure_fedgraph.experiment.code_digest import of_rooms
from secure_fedgraph.experiment.results import versions

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "budgets.json", ROOT / "docs" / "budgets.md"
BEGIN = "<!-- written by benchmarks/budget_figures.py -->"
MEASURES = ("global", "local", "personal", "personal_global", "own", "own_global")
MOST_SEEDS = 100


@dataclass(frozen=True)
class Row:
    """One curve in the table: its key, and how the table names it."""

    curve: str
    unit: str
    named: str
    personal: bool = False


ROWS = (
    Row("node, fedsgd", "node", "PubMed, 3, `fedsgd`", personal=True),
    Row("node, fedridge", "node", "PubMed, 3, `fedridge`", personal=True),
    Row("node, fedridge, cora", "node", "Cora, 3, `fedridge`", personal=True),
    Row("node, fedridge, citeseer", "node", "CiteSeer, 3, `fedridge`", personal=True),
    Row("graph, fedridge", "graph", "PROTEINS, 10, `fedridge-graphs`"),
    Row("graph, fedridge, imdb", "graph", "IMDB-BINARY, 10, `fedridge-graphs`"),
    Row("graph, fedridge, dd", "graph", "DD, 10, `fedridge-graphs`"),
    Row("client, fedsgc", "client", "PubMed, 200, `fedsgc`"),
    Row("edge", "link", "Cora, 3 (vertical), `glasu`, coins divided, `masked`"),
)


def figures(folder: Path, first: int) -> dict[str, Any]:
    """Means and standard errors of every finished point of the table's curves."""
    curves: dict[str, Any] = {}
    for one in ROWS:
        made = {}
        for name, _ in points(CURVES[one.curve]):
            runs = finished(folder / one.curve / name.replace(" ", "-"), range(first, first + MOST_SEEDS))
            if runs:
                made[name] = _point(runs)
        if made:
            trivial = [
                json.loads(path.read_text())["commonest class"]
                for path in sorted((folder / one.curve).glob("trivial-*.json"))
            ]
            curves[one.curve] = {
                "points": made,
                "commonest": round(fmean(trivial), 4) if trivial else None,
                "versions": versions(),
                "code": of_rooms(),
            }
    return curves


def _point(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {"seeds": [run["seed"] for run in runs]}
    if runs[0]["budget"]:
        unit = runs[0]["budget"]["unit"]
        made["spent"] = max(run["privacy"][unit]["epsilon"] for run in runs)
    for measure in MEASURES:
        scores = [run["accuracy"][measure] for run in runs if measure in run["accuracy"]]
        if len(scores) == len(runs):
            error = stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
            made[measure] = [round(fmean(scores), 4), None if error is None else round(error, 4)]
    return made


def lines(curves: dict[str, Any]) -> Iterator[str]:
    """The table as Markdown."""
    budgets = " | ".join(f"{epsilon:g}" for epsilon in BUDGETS)
    yield f"| one | data, owners | seeds | {budgets} | ± | no noise | alone, all / own | commonest |"
    yield f"|{'---|' * (len(BUDGETS) + 7)}"
    for one in ROWS:
        if one.curve not in curves:
            continue
        made = curves[one.curve]["points"]
        policy = CURVES[one.curve].policies[0]
        noised = [made.get(f"{policy} {epsilon:g}", {}) for epsilon in BUDGETS]
        counts = sorted({len(point["seeds"]) for point in noised if point})
        alone, trivial = made.get("alone", {}), curves[one.curve]["commonest"]
        most = counts[-1] if counts else 0
        both = " / ".join(_shown(alone, measure, most) for measure in ("global", "local")) if alone else ""
        errors = [point["global"][1] for point in noised if point and point["global"][1] is not None]
        yield line(
            one.unit, one.named, str(most or ""), *(_shown(one, "global", most) for one in noised),
            short(max(errors)) if errors else "", _shown(made.get("no noise", {}), "global", most), both,
            "" if trivial is None else short(trivial),
        )  # fmt: skip
        if one.personal:
            own = [
                short(fmean([point[measure][0] for point in noised if measure in point]))
                for measure in ("own", "own_global")
            ]
            personal = (
                f"{_shown(point, 'personal')} / {_shown(point, 'personal_global')}" if point else ""
                for point in noised
            )
            yield line("", "personal, own / all", "", *personal, "", "", f"own models {' / '.join(own)}", "")


def _shown(point: dict[str, Any], measure: str, seeds: int = 0) -> str:
    """A mean, and its number of seeds where that is not the row's."""
    if measure not in point:
        return ""
    text, others = short(point[measure][0]), len(point["seeds"])
    return text if others == seeds or measure != "global" or not seeds else f"{text} ({others})"


def main() -> None:
    """The command line."""
    asked = options(__doc__, rows=False, page=True)
    asked.add_argument("--keep", type=Path)
    asked.add_argument("--first", type=int, default=10, help="the first seed that is kept")
    given = asked.parse_args()
    if given.keep:
        before = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
        keep(KEPT, before | figures(given.keep, given.first))
    write_part(PAGE, BEGIN, lines(json.loads(KEPT.read_text())), given.check)


if __name__ == "__main__":
    main()
