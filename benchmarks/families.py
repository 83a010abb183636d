"""The families under a budget, beside the best that owners do alone, no privacy and no graph.

    python benchmarks/families.py [--seeds 3] [--first 20] [--only "FedSage, Cora"] [--out DIR] [--json]
    python benchmarks/families.py --attacks [--only "FedSage, Cora"] [--attack g3,g4]
    python benchmarks/families.py --check

Each score is of ``secure-fedgraph run`` as typed, at the defaults of the family and its form, one run a seed.
A run that has finished under the same code is not made again, so a call that was stopped goes on with the
same command. The scores are kept in ``benchmarks/results/families.json``, from which the table of
``docs/budgets.md`` is written; ``--check`` changes nothing and ends with status 1 where the page has another.

``--attacks`` audits each family's form at epsilon 4 as typed, seed 0, and writes the page's table of what
attacks reach; the cells are kept in ``benchmarks/results/family_attacks.json``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from written_pages import line, options, short, with_part, write_or_check

from secure_fedgraph.audits.grid.planned_runs import ROOMS
from secure_fedgraph.experiment.code_digest import of_rooms

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "families.json", ROOT / "docs" / "budgets.md"
ATTACKS, UNDEFENDED = KEPT.with_name("family_attacks.json"), KEPT.with_name("attacks.json")
BEGIN = "<!-- written by benchmarks/families.py -->"
ATTACKED = "<!-- attacks, written by benchmarks/families.py -->"
EPSILONS, ANY = ("1", "2", "4", "8"), ("4",)
UNATTACKED = ("FedSage, PubMed", "FedAvg", "`auto`")
"""Rows whose forms are other rows'."""
FREE, BLIND = "no noise", "no graph"
OF_BLIND = "--algorithm fedridge --set training.steps=0 --epsilon 4"


@dataclass(frozen=True)
class Row:
    """One family on one data set, for one unit.

    Args:
        unit: whose data the budget is for.
        algorithm, data: as typed; the second with the owners.
        measure: the score of all test data, by its name in ``result.json``.
        own: the score of what owners keep, on their own test data.
        epsilons: the budgets; with one, nothing that is sent depends on the unit, and it stands for all.
        free: whether the run without a budget is made too: where it takes over 20 minutes it is not.
        blind: whether the same budget without a link is run: of nodes.
        unnoised: arguments of the form with what it sends and no noise, which is attacked beside it.
    """

    unit: str
    algorithm: str
    data: str
    measure: str = "global"
    own: str = "personal"
    epsilons: tuple[str, ...] = EPSILONS
    free: bool = True
    blind: bool = False
    unnoised: str = ""

    def asked(self) -> Iterator[tuple[str, str]]:
        """Names of points, and the arguments of ``run``."""
        for epsilon in self.epsilons:
            yield epsilon, f"--algorithm {self.algorithm} {self.data} --unit {self.unit} --epsilon {epsilon}"
        if self.free:
            yield FREE, f"--algorithm {self.algorithm} {self.data}"
        if self.blind:
            yield BLIND, f"{OF_BLIND} {self.data} --unit {self.unit}"


def _nodes(algorithm: str, data: str, free: bool = True, unnoised: str = "") -> Row:
    return Row("node", algorithm, f"--data {data} --clients 3", free=free, blind=True, unnoised=unnoised)


def _columns(unit: str) -> Row:
    return Row(unit, "glasu", "--data cora --clients 3", epsilons=ANY)


SUMS = "--data cora --clients 3 --set training.sums=sent --rounds 1"
"""Class sums and one step; attacks read sums of the first round alone."""
ROWS = {
    "FedSage, Cora, 3": _nodes("fedsage", "cora", unnoised=f"--algorithm fedsage-steps {SUMS}"),
    "FedSage, PubMed, 3": _nodes("fedsage", "pubmed"),
    "FedSage+, Cora, 3": Row("node", "fedsage+", "--data cora --clients 3"),
    "FedGCN, Cora, 3": Row("node", "fedgcn", "--data cora --clients 3"),
    "FedEgo, Cora, 5": Row("node", "fedego", "--data cora"),
    "FedEgo, Cora, 5, labels": Row("label", "fedego", "--data cora"),
    "GLASU, Cora, 3, features": _columns("feature"),
    "GLASU, Cora, 3, links": _columns("edge"),
    "GLASU, Cora, 3, labels": _columns("label"),
    "GLASU, Cora, 3, nodes": _columns("node"),
    "APFLGate, BBBP, 16 (AUC)": Row("graph", "apflgate", "--data bbbp", "auc", own=""),
    "APFLGate, Ciao, 28 (MAE)": Row("edge", "apflgate", "--data ciao", "mae", own="", free=False),
    "FairGraphFL, PROTEINS, 10": Row("graph", "fairgraphfl", "--data proteins", own="local", free=False),
    "FedAvg, PROTEINS, 10": Row("graph", "fedavg", "--data proteins --clients 10", own="local"),
    "`auto`, CiteSeer, 3": _nodes("auto", "citeseer", free=False),
    "`auto`, Cora_ML, 3": _nodes("auto", "cora_ml", free=False),
    "`auto`, DBLP, 3": _nodes("auto", "dblp", free=False),
    "`auto`, Coauthor CS, 3": _nodes("auto", "coauthor-cs", free=False),
}


def made(
    name: str, row: Row, seeds: range, out: Path, kept: dict[str, Any], points: str = ""
) -> dict[str, Any]:
    """A row's scores, seed by seed, from runs that are made where they are not there.

    Args:
        kept: the row as it was; of its points those stay that are not made.
        points: a point to make; all by default.
    """
    code = of_rooms()
    found: dict[str, Any] = {
        "seeds": list(seeds), **{key: dict(kept.get(key, {})) for key in ("codes", "commands", "points")}
    }  # fmt: skip
    for point, asked in row.asked():
        if points not in ("", point):
            continue
        found["codes"][point] = code
        found["commands"][point] = f"secure-fedgraph run {asked} --seed {seeds.start} --seeds {len(seeds)}"
        # without a budget units are alike
        folder = out / (_word(asked) if point == FREE else _word(name)) / point
        each = [_run(folder, asked, seed, code) for seed in seeds]
        found["points"][point] = {
            key: [score.get(key) for score in each]
            for key in sorted({key for score in each for key in score})
        }
    return found


def _word(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)


def _run(folder: Path, asked: str, seed: int, code: str) -> dict[str, Any]:
    """The scores of one run; of one that was refused, why."""
    kept, out = folder / f"{seed}.json", folder / str(seed)
    if kept.is_file() and (scores := json.loads(kept.read_text())).pop("code") == code:
        return dict(scores)
    started = time.perf_counter()
    arguments = ["run", *asked.split(), "--seed", str(seed), "--out", str(out), "--overwrite", "--quiet"]
    typed = [sys.executable, "-m", "secure_fedgraph", *arguments]
    done = subprocess.run(typed, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        return {"why": done.stderr.strip()[-300:]}
    result = json.loads((out / "result.json").read_text())
    metrics = {name: one["global"] for name, one in result["metrics"].items()}
    plain = {name: value for name, value in result["accuracy"].items() if isinstance(value, float)}
    alone = result["baselines"]["alone"]
    found = {
        **{name: round(value, 4) for name, value in {**metrics, **plain}.items()},
        "alone": alone["metrics"].get(result["headline"], alone["best"]),
        "commonest": result["commonest_class"],
        "seconds": round(time.perf_counter() - started, 1),
    }
    kept.write_text(json.dumps({**found, "code": code}))
    print(f"{folder.parent.name} {folder.name} {seed}: {found['seconds']} s", file=sys.stderr)
    return found


def lines(rows: dict[str, Any]) -> Iterator[str]:
    """The table as Markdown."""
    budgets = " | ".join(EPSILONS)
    beside = "± | alone | no noise | no graph | own | alone, own | commonest"
    yield f"| family, data, owners | one | {budgets} | {beside} |"
    yield f"|{'---|' * (len(EPSILONS) + 9)}"
    for name, row in ROWS.items():
        if name in rows:
            yield _row(name, row, rows[name]["points"])


def _row(name: str, row: Row, points: dict[str, Any]) -> str:
    by_budget = [points[one if one in row.epsilons else row.epsilons[0]] for one in EPSILONS]
    at_four = points["4"]
    common = at_four.get("commonest") if row.measure == "global" else None
    own = _shown(at_four, row.own)
    alone = _shown(at_four, "own_global") if own else _shown(at_four, "alone")
    return line(
        name, row.unit, *(_shown(one, row.measure) for one in by_budget),
        short(max(_error(one, row.measure) for one in by_budget)),
        alone, _shown(points.get(FREE, {}), row.measure), _shown(points.get(BLIND, {}), "global"),
        own, _shown(at_four, "alone") if own else "", _shown({"commonest": common}, "commonest"),
    )  # fmt: skip


def _scores(point: dict[str, Any], key: str) -> list[float]:
    return [one for one in point.get(key) or [] if one is not None]


def _shown(point: dict[str, Any], key: str) -> str:
    scores = _scores(point, key)
    return short(statistics.fmean(scores)) if scores else ""


def _error(point: dict[str, Any], key: str) -> float:
    """The standard error of a mean over seeds."""
    scores = _scores(point, key)
    return statistics.stdev(scores) / len(scores) ** 0.5


def attacked(name: str, row: Row, attack: str, out: Path) -> dict[str, Any]:
    """The cells of a family's form at epsilon 4, and of what it sends without noise."""
    asked = f"{dict(row.asked())['4']} --attack {attack}"
    found = {"code": of_rooms(*ROOMS), "form": _audited(asked, out / name)}
    if row.unnoised:
        only = f"{row.unnoised} --policy masked --attack c7,a7-class-shares"
        found["unnoised"] = _audited(only, out / f"{name}, no noise")
    return found


def _audited(asked: str, out: Path) -> dict[str, Any]:
    """The cells of an audit as typed; finished ones of the same code are not made again."""
    started = time.perf_counter()
    typed = ["audit", *asked.split(), "--seed", "0"]
    arguments = [sys.executable, "-m", "secure_fedgraph", *typed, "--out", str(out), "--quiet"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{' '.join(typed)}: {done.stderr.strip()[-600:]}")
    seconds = round(time.perf_counter() - started)
    print(f"{out.name}: {seconds} s", file=sys.stderr)
    cells = json.loads((out / "audit.json").read_text())["cells"]
    keys = (
        "attack", "adversary", "subject", "metric", "score", "low", "high", "baseline", "leaks", "accuracy"
    )  # fmt: skip
    scored = [c for c in cells if c["outcome"] == "score"]
    return {
        "command": " ".join(["secure-fedgraph", *typed]),
        "seconds": seconds,
        "cells": [{key: c[key] for key in keys} | c["settings"] for c in scored],
        "blind": sorted({c["attack"] for c in cells} - {c["attack"] for c in scored}),
    }


def attack_lines(rows: dict[str, Any]) -> Iterator[str]:
    """What attacks reach against each form, one row a family, as Markdown."""
    reached = ("told apart (guessing)", "not told apart (guessing)")
    yield from (line("family, data, owners", "budget for", "accuracy", *reached), f"|{'---|' * 5}")
    open_rows = json.loads(UNDEFENDED.read_text())["attacks"]
    for name, row in ROWS.items():
        form = rows.get(name, {}).get("form", {})
        if form and not form["cells"]:
            yield line(name, row.unit, "", "", f"none of {len(form['blind'])} reads anything that is sent")
        elif form:
            bare = rows[name].get("unnoised", {}).get("cells", ())
            # adversaries who reach the same are one
            cells = {(c["attack"], c["aim"], c["score"]): c for c in reversed(form["cells"])}.values()
            apart, others = (
                [_attack(c, row, bare, open_rows) for c in reversed(cells) if c["leaks"] == leaks]
                for leaks in (True, False)
            )
            accuracy = (form["cells"][0]["accuracy"] or {}).get(row.measure, float("nan"))
            yield line(name, row.unit, short(accuracy), ", ".join(apart), ", ".join(others))


def _attack(cell: dict[str, Any], row: Row, bare: Iterable[dict[str, Any]], open_rows: Any) -> str:
    """What one attack reaches, what guessing does, and what it reaches without noise or a budget."""
    beside = [short(cell["baseline"])]
    keys = ("attack", "adversary", "aim")
    unnoised = next((c for c in bare if all(c[key] == cell[key] for key in keys)), None)
    if unnoised:
        beside.append(f"without noise {short(unnoised['score'])}")
    undefended = [
        r["score"] for r in open_rows
        if (r["algorithm"], r["attack"], r["aim"], r["adversary"], r["figure"])
        == (row.algorithm, cell["attack"], cell["aim"], cell["adversary"], cell["metric"])
        and r["data"] in row.data
    ]  # fmt: skip
    if undefended:
        beside.append(f"without a budget {short(statistics.fmean(undefended[0]))}")
    code = cell["attack"].split("-")[0].upper()
    left = "" if cell["aim"] == "each owner" else "\\*"
    return f"{code}{left} {short(cell['score'])} ({'; '.join(beside)})"


def page() -> str:
    """The page as the kept files make it."""
    text = with_part(PAGE.read_text(encoding="utf-8"), BEGIN, lines(json.loads(KEPT.read_text())))
    return with_part(text, ATTACKED, attack_lines(json.loads(ATTACKS.read_text())))


def main() -> None:
    """The command line."""
    asked = options(__doc__, page=True)
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--first", type=int, default=20, help="the first seed")
    asked.add_argument("--only", help="rows whose names start so")
    asked.add_argument("--point", default="", help="of each row this column only, such as 'no noise'")
    asked.add_argument("--out", type=Path, default=Path("runs/families"))
    asked.add_argument("--attacks", action="store_true", help="attack the forms in place of scoring them")
    asked.add_argument("--attack", default="all", help="with --attacks: these only, as audit takes them")
    given = asked.parse_args()
    if given.attacks:
        for name, row in ROWS.items():
            if name.startswith(given.only or "") and not name.startswith(UNATTACKED):
                cells = attacked(name, row, given.attack, given.out / "attacks")
                kept = json.loads(ATTACKS.read_text()) if ATTACKS.is_file() else {}
                ATTACKS.write_text(json.dumps({**kept, name: cells}, indent=1) + "\n")
        print("\n".join(attack_lines(json.loads(ATTACKS.read_text()))))
    elif not given.check:
        for name, row in ROWS.items():
            if name.startswith(given.only or ""):
                kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
                seeds = range(given.first, given.first + given.seeds)
                scores = made(name, row, seeds, given.out, kept.get(name, {}), given.point)
                KEPT.write_text(json.dumps({**kept, name: scores}, indent=1) + "\n")
        kept = json.loads(KEPT.read_text())
        print(json.dumps({"rows": kept}) if given.json else "\n".join(lines(kept)))
    write_or_check(PAGE, page(), given.check)


if __name__ == "__main__":
    main()
