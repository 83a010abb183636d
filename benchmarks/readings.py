"""FairGraphFL's Table 2 by other readings of "accuracy": which round an agent's score is taken from.

    secure-fedgraph reproduce fairgraphfl-2 --out runs/reproduce
    python benchmarks/readings.py [--runs runs/reproduce] [--check]

The paper does not say which round fairness and personal accuracy are of. With ``--runs`` they are worked out
again from every round of the table's finished runs, and kept in ``benchmarks/results/readings.json``. Then
``docs/reproducing.md`` is written from that file. ``--check`` changes nothing, and ends with status 1 where
the page is not what the file makes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import TypedDict

import numpy as np
from written_pages import keep, options, write_part

from secure_fedgraph.algorithms.fairgraphfl.fairness import correlation
from secure_fedgraph.experiment.reproduce import TABLES
from secure_fedgraph.experiment.reproduce.running import folder_of
from secure_fedgraph.experiment.reproduce.tables import Case

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "readings.json", ROOT / "docs" / "reproducing.md"
BEGIN = "<!-- written by benchmarks/readings.py -->"
MISSED = 0.15
"""How far from the paper's fairness a reading is shown."""
READINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "last round": lambda scores: scores[-1],
    "mean of the last 20": lambda scores: scores[-20:].mean(0),
    "mean of all rounds": lambda scores: scores.mean(0),
    "best round of all": lambda scores: scores[scores.mean(1).argmax()],
    "each its own best": lambda scores: scores.max(0),
}
"""From scores ``[rounds, agents]`` to one score an agent."""


class Row(TypedDict):
    """One method on one data set: means over seeds, by reading, and the paper's figures."""

    method: str
    data: str
    seeds: int
    fairness: dict[str, float]
    personal: dict[str, float]
    paper: dict[str, float]


def measured(runs: Path) -> Iterator[Row]:
    """Every method of the table that has finished runs, and self-training beside each."""
    table = TABLES["fairgraphfl-2"]
    cases = {(cell.row, cell.column.split(",")[0]): cell for cell in table.cells if cell.alone is not None}
    for (method, data), cell in cases.items():
        assert cell.case is not None and cell.alone is not None
        both = [
            (_scores(cell.case, seed, runs), _scores(cell.alone, seed, runs)) for seed in range(table.seeds)
        ]
        pairs = [(mine, alone) for mine, alone in both if mine is not None and alone is not None]
        if not pairs:
            continue
        of_it = {other.column: other.paper for other in table.cells if other.row == method}
        paper = {
            word: score
            for word in ("fairness", "personal")
            if (score := of_it.get(f"{data}, {word}")) is not None
        }
        yield {
            "method": method,
            "data": data,
            "seeds": len(pairs),
            "fairness": {name: _fairness(pairs, of) for name, of in READINGS.items()},
            "personal": {
                name: fmean(float(of(mine).mean()) for mine, _ in pairs) for name, of in READINGS.items()
            },
            "paper": paper,
        }


def _fairness(pairs: list[tuple[np.ndarray, np.ndarray]], of: Callable[[np.ndarray], np.ndarray]) -> float:
    return float(np.nanmean([correlation(list(of(alone)), list(of(mine))) for mine, alone in pairs]))


def _scores(case: Case, seed: int, runs: Path) -> np.ndarray | None:
    """``[rounds, agents]`` accuracies on the agents' own tests; None where the run is not finished."""
    path = folder_of(case, seed, runs) / "result.json"
    if not path.is_file():
        return None
    rounds = [row["owners"] for row in json.loads(path.read_text())["rounds"] if row.get("owners")]
    return np.array([[owners[name] for name in sorted(owners)] for owners in rounds])


def lines(rows: list[Row]) -> Iterator[str]:
    """Two readings of fairness as Markdown, where the last round is further than MISSED from the paper."""
    shown = ("last round", "mean of all rounds")
    yield f"| fairness | {' | '.join(shown)} | the paper |"
    yield "|---|---|---|---|"
    for row in rows:
        if abs(row["fairness"]["last round"] - row["paper"]["fairness"]) <= MISSED:
            continue
        cells = " | ".join(f"{row['fairness'][name]:.3f}" for name in shown)
        yield f"| {row['method']}, {row['data']} | {cells} | {row['paper']['fairness']:.3f} |"
    yield ""


def main() -> None:
    """The command line."""
    asked = options(__doc__, rows=False, page=True)
    asked.add_argument("--runs", type=Path)
    given = asked.parse_args()
    if given.runs:
        keep(KEPT, {"rows": list(measured(given.runs))})
    kept: list[Row] = json.loads(KEPT.read_text())["rows"]
    write_part(PAGE, BEGIN, lines(kept), given.check)


if __name__ == "__main__":
    main()
