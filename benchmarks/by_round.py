"""Writes scores by which round counts, and differences between methods, into two algorithms' pages.

    python benchmarks/by_round.py [--check]

All figures are of the packed runs of ``benchmarks/results/reproduce/runs.jsonl``, which
``secure-fedgraph reproduce`` made. ``--check`` changes nothing and ends with status 1 where a page is not
what the runs make it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student
from written_pages import options, with_part, write_or_check

from secure_fedgraph.experiment.reproduce import TABLES

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "benchmarks" / "results" / "reproduce" / "runs.jsonl"
BEGIN = "<!-- written by benchmarks/by_round.py -->"
HEADS = ("seeds", "last", "best by validation", "best on test", "std", "the paper")
WHICH = ("last", "best_by_validation", "best_on_test")
Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""A case's folder -> seed -> the scores of its run."""


@dataclass(frozen=True)
class Method:
    """One line of a page's table: a method on a data set.

    Args:
        name: as the page has it.
        folder: of its runs.
        paper: what the paper prints, by measure.
    """

    name: str
    folder: str
    paper: Mapping[str, float | None]


@dataclass(frozen=True)
class Part:
    """What one page holds.

    Args:
        page: its file.
        tables: the papers' tables that its methods stand in.
        columns: of these tables.
        measures: what is scored, in the order in which a line gives it.
        pairs: methods whose difference is given.
        more: methods that stand in no table: name -> folder of their runs.
        trivial: what predicts without a model -> its measure, in the runs of the first of ``more``.
    """

    page: Path
    tables: tuple[str, ...]
    columns: tuple[str, ...]
    measures: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    trivial: Mapping[str, str] = field(default_factory=dict)

    def methods(self) -> dict[str, Method]:
        """Name -> method, one data set after the other, as the tables order them."""
        papers: dict[tuple[str, str], dict[str, float | None]] = defaultdict(dict)
        for table in self.tables:
            for cell in TABLES[table].cells:
                data = cell.column.split(",")[0]
                if cell.case is None or data not in self.columns:
                    continue
                papers[f"{data}, {cell.row}", cell.case.folder][cell.measure] = cell.paper
        ordered = sorted(papers, key=lambda key: self.columns.index(key[0].split(", ")[0]))
        found = {name: Method(name, folder, papers[name, folder]) for name, folder in ordered}
        none = dict.fromkeys(self.measures)
        return found | {name: Method(name, folder, none) for name, folder in self.more.items()}


FEDEGO = ("fedego-2", "fedego-3", "fedego-9")
ALGORITHMS = ROOT / "docs" / "algorithms"
PARTS = (
    Part(
        ALGORITHMS / "fedego.md", FEDEGO, ("Cora", "CiteSeer"), ("global", "local"),
        pairs=(("Cora, FedEgo", "Cora, FedAvg"), ("CiteSeer, FedEgo", "CiteSeer, FedAvg"),
               ("Cora, FedEgo", "Cora, D-FedGNN")),
    ),
    Part(
        ALGORITHMS / "apflgate.md", ("apflgate-1", "apflgate-2"), ("BBBP", "Ciao"), ("auc", "mae"),
        pairs=(("BBBP, APFLGate, alpha 0.25", "BBBP, APFL"), ("BBBP, APFLGate, alpha 0.25", "BBBP, FedGATE")),
        more={f"Ciao, {name}, with habits": f"{folder}-ciao-local-steps=5-learning-rate=0.03{alpha}"
              for name, folder, alpha in (("APFL", "apfl", "-alpha=0.25"), ("FedGATE", "fedgate", ""),
                                          ("APFLGate, alpha 0.25", "apflgate", "-alpha=0.25"))},
        trivial={"every owner's median": "mae_client_median", "every owner's mean": "mae_client_mean",
                 "always 4": "mae_constant_4"},
    ),
)  # fmt: skip


def kept_runs() -> Runs:
    """The packed runs."""
    found: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for line in map(json.loads, RUNS.read_text(encoding="utf-8").splitlines()):
        _, folder, seed = line["run"].split("/")
        found[folder][int(seed.removeprefix("seed-"))] = line["result"]["accuracy"]
    return found


def lines(part: Part, runs: Runs) -> Iterator[str]:
    """A page's part: the table, and a line for each pair."""
    yield f"\n| | {' | '.join(HEADS)} |\n|{'---|' * (1 + len(HEADS))}"
    methods = part.methods()
    for method in methods.values():
        if seeds := runs.get(method.folder):
            yield _row(method, seeds, part.measures)
    if part.trivial:
        seeds = runs[next(iter(part.more.values()))]
        yield from (
            f"| {name} | {_named(sorted(seeds))} | {fmean(one[key] for one in seeds.values()):.3f} | | | | |"
            for name, key in part.trivial.items()
        )
    differences = [line for pair in part.pairs for line in _difference(*pair, methods, runs, part.measures)]
    if differences:
        yield "\nDifferences by the best round on test, seed by seed, with 95 % intervals (Student's t):\n"
        yield from differences


def _row(method: Method, seeds: Mapping[int, Mapping[str, Any]], measures: Sequence[str]) -> str:
    measures = [one for one in measures if one in method.paper and one in next(iter(seeds.values()))]
    by_round = {which: [_scores(seeds, which, one) for one in measures] for which in WHICH}
    means = [_together(fmean(values) if values else None for values in by_round[which]) for which in WHICH]
    spread = _together(stdev(values) if len(values) > 1 else None for values in by_round["best_on_test"])
    paper = _together(method.paper[one] for one in measures)
    return f"| {method.name} | {_named(sorted(seeds))} | {' | '.join(means)} | {spread} | {paper} |"


def _scores(seeds: Mapping[int, Mapping[str, Any]], which: str, measure: str) -> list[float]:
    """Of all seeds; empty where one lacks the measure."""
    found = [
        (one if which == "last" else one.get(which) or {}).get(measure) for _, one in sorted(seeds.items())
    ]
    known = [float(value) for value in found if value is not None]
    return known if len(known) == len(found) else []


def _together(values: Iterable[float | None]) -> str:
    told = ["-" if one is None else f"{one:.3f}" for one in values]
    return " / ".join(told) if set(told) != {"-"} else ""


def _named(seeds: Sequence[int]) -> str:
    whole = list(seeds) == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 2
    return f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))


def _difference(
    mine: str, other: str, methods: Mapping[str, Method], runs: Runs, measures: Sequence[str]
) -> Iterator[str]:
    ours, theirs = (runs.get(methods[name].folder, {}) for name in (mine, other))
    both = sorted(ours.keys() & theirs.keys())
    if len(both) < 2:
        return
    found = []
    for measure in measures:
        if measure not in methods[mine].paper:
            continue
        scores = (
            _scores({seed: of[seed] for seed in both}, "best_on_test", measure) for of in (ours, theirs)
        )
        gaps = [one - another for one, another in zip(*scores, strict=True)]
        half = float(student.ppf(0.975, len(gaps) - 1)) * stdev(gaps) / len(gaps) ** 0.5
        found.append(f"{measure} {fmean(gaps):+.3f} [{fmean(gaps) - half:+.3f}, {fmean(gaps) + half:+.3f}]")
    yield f"- {mine} less {other.split(', ', 1)[1]}: {', '.join(found)} ({len(both)} seeds)"


def main() -> None:
    """The command line."""
    asked = options(__doc__, rows=False, page=True)
    given, runs = asked.parse_args(), kept_runs()
    for part in PARTS:
        text = part.page.read_text(encoding="utf-8")
        made = with_part(text, BEGIN, lines(part, runs))
        if not given.check or made != text:
            write_or_check(part.page, made, given.check)


if __name__ == "__main__":
    main()
