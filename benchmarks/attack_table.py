"""Every attack with nothing against it: where it must succeed, and at the papers' defaults.

    python benchmarks/attack_table.py [--only mashes] [--seeds 3] [--out runs/attacks] [--table] [--json]

Runs are kept and not repeated, so it can be stopped at any time; ``--table`` prints what is there. "Asked" is
the number that an attack has to reach at the settings of its control (``list attacks --json``). Defaults
are the papers', but for the rounds of a case and what stands in its ``changes``.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.table import Table

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS

PLAIN = "plaintext"


@dataclass(frozen=True)
class Asked:
    """What an attack has to reach.

    Args:
        attack: its id.
        control: the settings' name.
        least: of the score, or of ``detail``; None: beyond every trivial guess.
        detail: a figure beside the score.
        adversary, aim: whose cell is read.
    """

    attack: str
    control: str
    least: float | None = 0.999
    detail: str = ""
    adversary: str = "server"
    aim: str = SINGLE_OWNERS


@dataclass(frozen=True)
class Case:
    """Attacks that share their runs."""

    name: str
    config: Mapping[str, Any]
    asked: Sequence[Asked]
    policy: str = PLAIN
    changes: Sequence[str] = field(default=())


FREE = {"data": "cora"}
TWENTY = "labels at one owner for twenty rounds"
HOLDER = ("training.backward=local", "training.sampler=public", "split.labels=one")
ORACLE = "1 crafted message of 2048 rows, c3 plays"
CASES = (
    Case(
        "weights",
        {"algorithm": "fedsage", **FREE, "rounds": 5},
        (
            Asked("a1-vocabulary-support", choices.AS_CONFIGURED),
            Asked("a2-single-sample", "one training node"),
            Asked("a4-label-counts", "one full step"),
        ),
    ),
    Case(
        "batches",
        {"algorithm": "fedsage", **FREE, "rounds": 1},
        (Asked("a3-relu-batch", "share 0.004 a step at width 256", 0.9),),
    ),
    Case(
        "graphs",
        {"algorithm": "apflgate", "data": "synthetic-molecules", "clients": 8, "rounds": 1},
        (
            Asked("a6-graph-structure", "1 graph a step", None),
            Asked("a6-graph-structure", "1 graph a step at width 256", 0.8),
            Asked("a6-graph-structure", "2 graphs a step", None),
            Asked("a6-graph-structure", "4 graphs a step", None),
            Asked("a6-graph-structure", "8 graphs a step", None),
        ),
    ),
    Case(
        "molecules",
        {"algorithm": "apflgate", "data": "bbbp", "clients": 8, "rounds": 1},
        (
            Asked("a6-graph-structure", "1 graph a step", None),
            Asked("a6-graph-structure", "1 graph a step at width 256", 0.8),
        ),
    ),
    Case(
        "prototypes",
        {"algorithm": "fairgraphfl", "data": "proteins", "rounds": 1},
        (
            Asked("e1-singleton-motif", "counts are sent"),
            Asked("e2-subset-algebra", "prototypes of each", least=None),
        ),
    ),
    Case(
        "bounded-prototypes",
        {"algorithm": "fairgraphfl-bounded", "data": "proteins", "rounds": 1},
        (Asked("e3-round-differencing", "bounded sums of a frozen model"),),
    ),
    Case(
        "vertical",
        {"algorithm": "glasu", **FREE, "rounds": 4},
        (
            Asked("d1-index-lists", "one-hop lists", 0.85),
            Asked("d1-index-union", "one-hop lists", least=None, adversary="client", aim=RESIDUAL),
            Asked("d2-subtracted-rows", "two owners", adversary="client"),
            Asked("d3-alike-rows", choices.AS_CONFIGURED, least=None),
            Asked("d5-gradient-labels", "labels at one owner", 0.99),
            Asked("d5-gradient-clusters", "labels at one owner", 0.99),
        ),
    ),
    Case(
        "rounds",
        {"algorithm": "fedsage", **FREE, "rounds": 2},
        (
            Asked("f1-cohort-differencing", "drop-outs and small steps", least=None),
            Asked("f2-own-share-subtraction", choices.AS_CONFIGURED, adversary="coalition"),
        ),
        policy="masked",
    ),
    Case(
        "released",
        {"algorithm": "fedsage", **FREE, "rounds": 20},
        tuple(
            Asked(name, choices.AS_CONFIGURED, least=None, adversary="outsider")
            for name in ("g1-link-stealing", "g2-embedding-inversion", "g3-node-membership")
        ),
    ),
    Case(
        "shadow-owners",
        {"algorithm": "fedsage", **FREE, "rounds": 5},
        (
            Asked("a7-class-shares", choices.AS_CONFIGURED, least=None),
            Asked("a7-node-owner", choices.AS_CONFIGURED, least=None),
        ),
    ),
    Case(
        "ridge",
        {"algorithm": "fedridge", **FREE, "rounds": 1},
        (
            Asked("a7-class-shares", choices.AS_CONFIGURED, least=None),
            Asked("a7-node-owner", choices.AS_CONFIGURED, 0.99),
            Asked("g4-node-likelihood-ratio", choices.AS_CONFIGURED, 0.9, adversary="outsider"),
        ),
    ),
    Case(
        "influence",
        {"algorithm": "fedsage", **FREE, "rounds": 20},
        tuple(
            Asked(name, choices.AS_CONFIGURED, least=None, adversary="outsider")
            for name in ("g4-node-likelihood-ratio", "g7-link-teller")
        ),
    ),
    Case(
        "personal",
        {"algorithm": "local", **FREE, "clients": 10, "rounds": 10},
        tuple(
            Asked(name, choices.AS_CONFIGURED, least=None, adversary="outsider")
            for name in ("g5-class-shares", "g6-node-owner")
        ),
    ),
    Case(
        "scores",
        {"algorithm": "fedsage", **FREE, "rounds": 10, "evaluation": "in_band"},
        (
            Asked("i1-test-sizes", choices.AS_CONFIGURED),
            Asked("i2-constant-answers", f"{choices.AS_CONFIGURED}, i2 plays"),
        ),
    ),
    Case(
        "payoffs",
        {"algorithm": "fairgraphfl", "data": "proteins", "rounds": 5},
        (Asked("e6-payoff-quality", "thirty agents of three qualities and shared diversity", 0.95),),
    ),
    Case(
        "lists",
        {"algorithm": "fairgraphfl", "data": "proteins", "rounds": 1},
        (Asked("e5-listed-members", "thirty agents and rings of eight", None),),
    ),
    Case(
        "sizes",
        {"algorithm": "dw", "data": "proteins", "rounds": 1},
        (Asked("e6-payoff-sizes", "two agents of uneven sizes", adversary="client"),),
    ),
    Case(
        "standing",
        {"algorithm": "fedsage", **FREE, "rounds": 10},
        (Asked("h5-standing-model", "drop-outs and training that draws nothing, h5 plays"),),
        policy="masked",
    ),
    Case(
        "leaning",
        {"algorithm": "glasu", **FREE, "rounds": 1},
        (
            Asked(
                "d8-leaning-completion",
                "labels at one owner for four rounds, d8 plays",
                None,
                adversary="last client",
            ),
        ),
    ),
    Case(
        "columns",
        {"algorithm": "glasu", **FREE, "rounds": 1},
        (
            Asked("d7-blind-groups", "labels at one owner", 0.99),
            Asked("d7-blind-groups", TWENTY, None, aim=RESIDUAL),
            Asked("d8-model-completion", TWENTY, None, adversary="last client"),
        ),
    ),
    *(
        Case(
            f"completed-{name}",
            {"algorithm": "glasu-one-label-holder", **FREE, "rounds": rounds},
            (Asked("d8-model-completion", choices.AS_CONFIGURED, None, adversary="last client"),),
            changes=(*HOLDER, *more),
        )
        for name, rounds, more in (
            ("after-two", 2, ()),
            ("after-four", 4, ()),
            ("fast", 4, ("training.learning_rate=0.5",)),  # what all gain by the rate of one who leans
        )
    ),
    Case(
        "neighgen",
        {"algorithm": "fedsage+", **FREE, "rounds": 1},
        (
            Asked("c1-neighgen-single", "exchange batch 1"),
            Asked("c2-neighgen-batch", "exchange batch 32"),
            Asked("c5-embedding-links", choices.AS_CONFIGURED, least=None),
        ),
        changes=("training.generator_epochs=2", "training.federated_epochs=1"),
    ),
    Case(
        "summed",
        {"algorithm": "fedsage+", **FREE, "rounds": 1},
        tuple(
            Asked("c7-summed-members", choices.AS_CONFIGURED, None, adversary=who)
            for who in ("server", "client")
        ),
        changes=("training.feedback=prototypes",),
    ),
    Case(
        "planted",
        {"algorithm": "fedsage", **FREE, "rounds": 1},
        tuple(
            Asked("a5-planted-units", f"{one.name}, a5 plays", 0.02, aim=RESIDUAL)
            for one in ATTACKS["a5-planted-units"].controls
        ),
        "masked",
    ),
    Case(
        "neighbour-sums",
        {"algorithm": "fedgcn", **FREE, "rounds": 1},
        (
            Asked("c6-neighbour-sums", choices.AS_CONFIGURED),
            Asked("c6-neighbour-sums", choices.AS_CONFIGURED, adversary="client"),
        ),
    ),
    Case(
        "oracle",
        {"algorithm": "fedsage+", **FREE, "clients": 10, "rounds": 1},
        (Asked("c3-neighgen-oracle", ORACLE, 0.9, adversary="client"),),
        changes=(
            "training.generator_hidden=[256,512]",
            "training.generator_epochs=2",
            "training.federated_epochs=1",
        ),
    ),
    Case(
        "mashes",
        {"algorithm": "fedego", **FREE, "rounds": 5},
        (
            Asked("b1-mash-single", "a remainder of one", 0.95),
            Asked("b2-mash-labels", "a remainder of one"),
            Asked("b4-mash-dictionary", "kept batches of 32", 0.9),
            Asked("b5-mash-filter", "kept batches of 32", 0.78),
            Asked("b6-mash-mixing", "seeded batches"),
            Asked("b3-mash-average", "fifty noised rounds", -0.55, "slope"),
        ),
        changes=("training.hidden=[64,64]",),
    ),
)


def run(case: Case, seeds: int, out: Path) -> list[dict[str, Any]]:
    """The cells of a case: its controls and its configured run."""
    chosen = load(None, {**case.config, "policy": case.policy}, list(case.changes))
    kinds = [ATTACKS[one.attack] for one in case.asked]
    declared = {one.name for kind in kinds for one in kind.controls}
    # an active attack's control has who plays it after the name
    names = sorted(
        name
        for name in declared
        if any(one.control == name or one.control.startswith(f"{name}, ") for one in case.asked)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing protects it is the point
        found = grid.audit(
            chosen, [case.policy], kinds, range(seeds), out / case.name, controls=names, effort=60, workers=1
        )
    return found.cells


def rows(case: Case, cells: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each number that was asked for, and what the configured run gives beside it."""
    for asked in case.asked:
        mine = [
            c
            for c in cells
            if (c["attack"], c["adversary"], c["settings"]["aim"])
            == (asked.attack, asked.adversary, asked.aim)
        ]
        here = [c for c in mine if c["settings"]["variant"] == asked.control]
        default = [c for c in mine if c["settings"]["variant"].startswith(choices.AS_CONFIGURED)]
        got = [value for c in here if (value := _figure(c, asked)) is not None]
        yield {
            "attack": asked.attack,
            "adversary": asked.adversary,
            "settings": asked.control,
            "figure": asked.detail or next((c["metric"] for c in here if c["metric"]), ""),
            "asked": asked.least,
            "score": got,
            "interval": [(c["low"], c["high"]) for c in here if c["outcome"] == "score"],
            "trivial": [c["baseline"] for c in here if c["baseline"] is not None],
            # in band there is none of the joint model on everybody's test nodes
            "accuracy": [c["accuracy"].get("global") for c in here if c["outcome"] == "score"],
            "reached": bool(got) and len(got) == len(here) and _reached(asked, here, fmean(got)),
            "defaults": [_figure(c, asked) for c in default if c["outcome"] == "score"],
            "otherwise": sorted({c["reason"] for c in (*here, *default) if c["outcome"] != "score"}),
            "seconds": max((c["seconds"] or 0.0 for c in here), default=0.0),
        }


def _figure(cell: Mapping[str, Any], asked: Asked) -> float | None:
    if cell["outcome"] != "score":
        return None
    figure: float | None = cell["details"].get(asked.detail) if asked.detail else cell["score"]
    return figure


def _reached(asked: Asked, cells: Sequence[Mapping[str, Any]], mean: float) -> bool:
    if asked.least is None:
        return all(cell["leaks"] for cell in cells)
    if asked.detail == "slope":  # of a square root: as little below as above
        return asked.least <= mean <= asked.least + 0.1
    return mean >= asked.least


def told(values: Sequence[float | None]) -> str:
    numbers = [v for v in values if v is not None and not math.isnan(v)]
    if not numbers:
        return "-"
    spread = f" ± {stdev(numbers):.3f}" if len(numbers) > 1 else ""
    return f"{fmean(numbers):.3f}{spread}"


class Named(Protocol):
    """What is run and kept under a name of its own."""

    @property
    def name(self) -> str:
        """Of its folder and its file."""


Kind = TypeVar("Kind", bound=Named)


def options(doc: str | None, folder: str) -> argparse.ArgumentParser:
    """The options of a table of cases."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--only", default="", help="a part of a case's name")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(folder))
    parser.add_argument("--table", action="store_true", help="print what is there, run nothing")
    parser.add_argument("--json", action="store_true")
    return parser


def collected(
    given: argparse.Namespace,
    cases: Sequence[Kind],
    work: Callable[[Kind, int, Path], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """The rows of all cases that the command line asks for, run or read."""
    found: list[dict[str, Any]] = []
    for case in (c for c in cases if given.only in c.name):
        path = given.out / f"{case.name}.json"
        if not given.table:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(work(case, given.seeds, given.out)))
        if path.is_file():
            found += json.loads(path.read_text())
    return found


def main() -> None:
    """Runs what is asked for, and prints the table."""
    given = options(__doc__, "runs/attacks").parse_args()
    found = collected(given, CASES, lambda c, n, out: list(rows(c, run(c, n, out))))
    if given.json:
        print(json.dumps(found, indent=1))
        return
    heads = ("attack", "by", "settings", "figure", "asked", "score", "trivial", "defaults", "s")
    table = Table(*heads, title="nothing protects; F1 and F2 under masks")
    for row in found:
        asked = "beyond trivial" if row["asked"] is None else f"{row['asked']:g}"
        table.add_row(
            row["attack"],
            row["adversary"],
            row["settings"],
            row["figure"],
            f"{asked} {'reached' if row['reached'] else 'NOT REACHED'}",
            told(row["score"]),
            told(row["trivial"]),
            told(row["defaults"]) if row["defaults"] else "; ".join(row["otherwise"])[:60],
            f"{row['seconds']:.0f}",
        )
    Console(width=None if Console().is_terminal else 200).print(table)


if __name__ == "__main__":
    main()
