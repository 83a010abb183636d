"""The families under a budget, beside the best that owners do alone, no privacy and no graph.

    python benchmarks/families.py [--seeds 3] [--first 20] [--only "FedSage, Cora"] [--out DIR] [--json]
    python benchmarks/families.py --check

Each row is ``secure-fedgraph compare`` as typed, at the defaults of the family and its form; the commands are
in the kept file. ``compare`` keeps finished runs, so a call that was stopped goes on with the same command.
The means are kept in ``benchmarks/results/families.json``, from which the table of ``docs/budgets.md`` is
written; ``--check`` changes nothing and ends with status 1 where the page has another table.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from written_pages import with_part, write_or_check

from secure_fedgraph.experiment.code_digest import of_rooms

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "families.json", ROOT / "docs" / "budgets.md"
BEGIN = "<!-- written by benchmarks/families.py -->"
EPSILONS = ("1", "2", "4", "8")


@dataclass(frozen=True)
class Row:
    """One family on one data set, for one unit.

    Args:
        unit: whose data the budget is for.
        asked: of the algorithm, data, owners and policy, as typed.
        measure: the score, by its name in ``compare.json``.
        own: the score on owners' own test data, with models that stay there, and that of owners alone.
        epsilons: the budgets; with one, nothing that is sent depends on the unit, and it stands for all.
        chosen: whether ``auto`` chooses, for each budget anew.
    """

    unit: str
    asked: str
    measure: str = "global"
    own: tuple[str, str] | None = ("personal", "own")
    epsilons: tuple[str, ...] = EPSILONS
    chosen: bool = False

    def commands(self) -> Iterator[list[str]]:
        """The arguments of ``compare``, one list a call."""
        fixed = ["--unit", self.unit, *self.asked.split()]
        for epsilons in [(one,) for one in self.epsilons] if self.chosen else [self.epsilons]:
            yield [*fixed, "--epsilon", ",".join((*epsilons, "inf"))]


ANY = ("4",)
ROWS = {
    "FedSage, PubMed, 3": Row("node", "--algorithm fedsage --data pubmed --clients 3"),
    "FedSage, Cora, 3": Row("node", "--algorithm fedsage --data cora --clients 3"),
    "FedSage+, PubMed, 3": Row("node", "--algorithm fedsage+ --data pubmed --clients 3"),
    "FedSage+, Cora, 3": Row("node", "--algorithm fedsage+ --data cora --clients 3"),
    "FedGCN, Cora": Row("node", "--algorithm fedgcn --data cora"),
    "FedEgo, Cora, 5": Row("node", "--algorithm fedego --data cora"),
    "FedEgo, Cora, 5, labels": Row("label", "--algorithm fedego --data cora --policy masked"),
    "GLASU, Cora, 3, features": Row(
        "feature", "--algorithm glasu --data cora --policy masked", own=None, epsilons=ANY
    ),
    "GLASU, Cora, 3, links": Row(
        "edge", "--algorithm glasu --data cora --policy masked", own=None, epsilons=ANY
    ),
    "GLASU, Cora, 3, labels": Row(
        "label", "--algorithm glasu --data cora --policy masked", own=None, epsilons=ANY
    ),
    "APFLGate, BBBP, 16 (AUC)": Row("graph", "--algorithm apflgate --data bbbp", "auc", None),
    "FairGraphFL, PROTEINS, 10": Row(
        "graph", "--algorithm fairgraphfl --data proteins", own=("local", "own")
    ),
    "FedAvg, PROTEINS, 10": Row("graph", "--algorithm fedavg --data proteins --clients 10", own=None),
    "`auto`, CiteSeer, 3": Row("node", "--algorithm auto --data citeseer --clients 3", chosen=True),
    "`auto`, Cora_ML, 3": Row("node", "--algorithm auto --data cora_ml --clients 3", chosen=True),
    "`auto`, DBLP, 3": Row("node", "--algorithm auto --data dblp --clients 3", chosen=True),
    "`auto`, Coauthor CS, 3": Row("node", "--algorithm auto --data coauthor-cs --clients 3", chosen=True),
}


def made(name: str, row: Row, first: int, seeds: int, out: Path) -> dict[str, Any]:
    """A row's figures, from its ``compare`` runs."""
    found: dict[str, Any] = {"unit": row.unit, "first": first, "seeds": seeds, "commands": [], "points": {}}
    for number, asked in enumerate(row.commands()):
        folder = out / "".join(one if one.isalnum() else "-" for one in name) / str(number)
        command = ["compare", *asked, "--seed", str(first), "--seeds", str(seeds)]
        typed = [sys.executable, "-m", "secure_fedgraph", *command, "--out", str(folder), "--quiet"]
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(typed, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found["commands"].append(f"secure-fedgraph {' '.join(command)}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(
            f"{name}: status {done.returncode}, {time.perf_counter() - started:.0f} s, {cpu:.0f} s of CPU",
            file=sys.stderr,
        )
        if not (folder / "compare.json").is_file():
            found["failed"] = done.stderr.strip()[-300:]
            continue
        result = json.loads((folder / "compare.json").read_text())
        found["versions"], found["code"] = result["versions"], of_rooms()
        for point in result["points"]:
            _take(found, row, point)
    return found


def _take(found: dict[str, Any], row: Row, point: dict[str, Any]) -> None:
    """Keeps one point of a comparison."""
    if point["outcome"] != "ran":
        found["points"][point["name"]] = {"why": point["reason"]}
        return
    budget = point["budget"]
    scores = {
        measure: [_rounded(point["accuracy"][measure]), _rounded(_error(point, measure))]
        for measure in {"global", "local", row.measure, *(row.own or ())}
        if measure in point["accuracy"]
    }
    if row.measure not in scores and row.measure in point["metrics"]:
        scores[row.measure] = [_rounded(point["metrics"][row.measure]["global"]), None]
    made: dict[str, Any] = {"kind": point["kind"], "algorithm": point["algorithm"], "scores": scores}
    if budget is not None:
        made |= {"epsilon": budget, "spent": point["spent"], "seconds": point["seconds"]}
        without = point.get("without_graph", {}).get("accuracy", {})
        if "global" in without:
            made["without_graph"] = _rounded(without["global"])
        alone = point.get("alone", {})
        if (key := "accuracy" if row.measure == "global" else row.measure) in alone:
            made["alone"] = _rounded(alone[key])
    if "commonest_class" in point:
        found["commonest"] = _rounded(point["commonest_class"])
    found["points"][point["name"]] = made


def _error(point: dict[str, Any], measure: str) -> float:
    return float(point["std"][measure]) / math.sqrt(point["seeds"])


def _rounded(value: float) -> float:
    return round(float(value), 4)


def lines(rows: dict[str, Any]) -> Iterator[str]:
    """The table as Markdown."""
    budgets = " | ".join(EPSILONS)
    yield f"| family, data, owners | one | | {budgets} | no noise | best alone | no graph, at 4 | commonest |"
    yield f"|---|---|---|{'---|' * len(EPSILONS)}---|---|---|---|"
    for name, row in ROWS.items():
        if name in rows:
            yield from _lines(name, row, rows[name])


def _lines(name: str, row: Row, kept: dict[str, Any]) -> Iterator[str]:
    points = list(kept["points"].values())
    noised = {f"{one['epsilon']:g}": one for one in points if "epsilon" in one}
    by_budget = [noised.get(one) or (noised.get("4") if row.epsilons == ANY else None) for one in EPSILONS]
    free = next((one for one in points if one.get("kind") == "no privacy"), {})
    alone = next((one["alone"] for one in noised.values() if "alone" in one), None)
    at_four = noised.get("4", {}).get("without_graph")
    word = {"global": "all test data", "auc": "AUC"}.get(row.measure, row.measure)
    common = kept.get("commonest") if row.measure == "global" else None
    yield _line(
        name, kept["unit"], word, *(_shown(one, row.measure) for one in by_budget),
        _shown(free, row.measure), _short(alone), _short(at_four), _short(common),
    )  # fmt: skip
    if row.own and any(one and row.own[0] in one["scores"] for one in by_budget):
        mine, others = row.own
        beside = [one["scores"][others][0] for one in by_budget if one and others in one["scores"]]
        yield _line(
            "", "", "own test data", *(_shown(one, mine) for one in by_budget), _shown(free, "local"),
            _short(sum(beside) / len(beside) if beside else None), "", "",
        )  # fmt: skip


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(point: dict[str, Any] | None, measure: str) -> str:
    """A mean and its standard error."""
    if not point or measure not in point.get("scores", {}):
        return ""
    mean, error = point["scores"][measure]
    return _short(mean) + (f" ± {_short(error)}" if error else "")


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}".removeprefix("0")


def page() -> str:
    """The page as the kept file makes it."""
    return with_part(PAGE.read_text(encoding="utf-8"), BEGIN, lines(json.loads(KEPT.read_text())))


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--first", type=int, default=20, help="the first seed")
    asked.add_argument("--only", help="rows whose names start so")
    asked.add_argument("--out", type=Path, default=Path("runs/families"))
    asked.add_argument("--json", action="store_true")
    asked.add_argument("--check", action="store_true")
    given = asked.parse_args()
    if not given.check:
        kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
        for name, row in ROWS.items():
            if name.startswith(given.only or ""):
                kept[name] = made(name, row, given.first, given.seeds, given.out)
                KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        print(json.dumps({"rows": kept}) if given.json else "\n".join(lines(kept)))
    write_or_check(PAGE, page(), given.check)


if __name__ == "__main__":
    main()
