"""Every attack against the policy that is meant to stop it, and against what that policy leaves.

    python benchmarks/attack_defences.py [--only weights] [--seeds 3] [--out runs/defences] [--table] [--json]

The same settings under which ``attack_table.py`` shows the attack to succeed, with the defence on top. "Each
owner" is the attack itself; "what is left" is its second aim: what the defence still reveals, a sum over all
owners most often. Runs are kept and not repeated, so it can be stopped at any time. Noise is that of one
multiplier that is large enough to show; which epsilon it is worth stands in each run's result.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attack_table import FREE, collected, told
from rich.console import Console
from rich.table import Table

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS


@dataclass(frozen=True)
class Defence:
    """A policy and settings, and the attacks that they are meant to stop.

    Args:
        name: what ``--only`` looks for.
        config: the experiment.
        policy: and with ``changes`` the defence.
        changes: also the settings under which the attacks succeed without it.
        attacks: each with the adversary that it is stopped for.
    """

    name: str
    config: Mapping[str, Any]
    policy: str
    changes: Sequence[str]
    attacks: Sequence[tuple[str, str]]


def control(attack: str, number: int = 0) -> tuple[str, ...]:
    """The settings under which an attack succeeds where nothing protects."""
    settings = ATTACKS[attack].controls[number].settings
    return tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())


SAGE = {"algorithm": "fedsage", **FREE, "rounds": 1}
PLUS = {"algorithm": "fedsage+", **FREE, "rounds": 1}
GLASU = {"algorithm": "glasu", **FREE, "rounds": 4}
FAIR = {"algorithm": "fairgraphfl", "data": "proteins", "rounds": 1}
EGO = {"algorithm": "fedego", **FREE, "rounds": 5}
NOISE = ("protection.norm=1.0", "protection.multiplier=1.0")
BOUNDED = {**FAIR, "algorithm": "fairgraphfl-bounded"}
ACROSS = ("training.mash=across",)
KEPT = control("b4-mash-dictionary")
ONE = control("a2-single-sample")
FULL = control("a4-label-counts")
LABELS = control("d5-gradient-labels")
DEFENCES = (
    Defence("weights-masked", SAGE, "masked", (), (("a1-vocabulary-support", "server"),)),
    Defence("weights-masked-single", SAGE, "masked", ONE, (("a2-single-sample", "server"),)),
    Defence("weights-masked-counts", SAGE, "masked", FULL, (("a4-label-counts", "server"),)),
    Defence("weights-noised", SAGE, "local_dp", NOISE, (("a1-vocabulary-support", "server"),)),
    Defence("weights-noised-single", SAGE, "local_dp", (*ONE, *NOISE), (("a2-single-sample", "server"),)),
    Defence("weights-noised-counts", SAGE, "local_dp", (*FULL, *NOISE), (("a4-label-counts", "server"),)),
    Defence(
        "planted-noised",
        SAGE,
        "distributed_dp",
        (*control("a5-planted-units"), *NOISE),
        (("a5-planted-units", "server"),),
    ),
    Defence(
        "mashes-across",
        EGO,
        "masked",
        (*KEPT, *ACROSS),
        tuple((f"b{n}", "server") for n in ("4-mash-dictionary", "5-mash-filter", "2-mash-labels")),
    ),
    Defence("mashes-whole", EGO, "plaintext", ("training.hidden=[64,64]",), (("b1-mash-single", "server"),)),
    Defence(
        "mashes-secret",
        EGO,
        "plaintext",
        (*control("b6-mash-mixing"), "training.batching=secret", "rounds=5"),
        (("b6-mash-mixing", "server"),),
    ),
    Defence(
        "mashes-once",
        EGO,
        "local_dp",
        (*control("b3-mash-average"), "training.mash_rounds=1", "rounds=5"),
        (("b3-mash-average", "server"),),
    ),
    Defence(
        "neighgen-sealed",
        PLUS,
        "masked",
        control("c2-neighgen-batch", 1),
        (
            ("c1-neighgen-single", "server"),
            ("c2-neighgen-batch", "server"),
            ("c5-embedding-links", "server"),
            ("c2-neighgen-batch", "client"),
        ),
    ),
    Defence(
        "neighgen-noised",
        PLUS,
        "local_dp",
        (*control("c3-neighgen-oracle"), *NOISE),
        (("c3-neighgen-oracle", "client"),),
    ),
    Defence(
        "neighbour-sums-masked",
        {"algorithm": "fedgcn", "data": "cora", "rounds": 1},
        "masked",
        (),
        (("c6-neighbour-sums", "server"), ("c6-neighbour-sums", "client")),
    ),
    Defence(
        "vertical-public",
        GLASU,
        "plaintext",
        (*control("d1-index-lists"), "training.sampler=public", "rounds=4"),
        (("d1-index-lists", "server"), ("d1-index-union", "client")),
    ),
    Defence(
        "vertical-three", GLASU, "masked", ("training.sampler=public",), (("d2-subtracted-rows", "client"),)
    ),
    Defence(
        "vertical-masked",
        GLASU,
        "masked",
        ("training.sampler=public",),
        (("d3-alike-rows", "server"), ("d3-alike-rows", "client")),
    ),
    Defence(
        "vertical-labels",
        GLASU,
        "masked",
        LABELS,
        (
            ("d5-gradient-labels", "server"),
            ("d5-gradient-clusters", "server"),
            ("d5-gradient-labels", "last client"),
        ),
    ),
    Defence(
        "prototypes-support",
        FAIR,
        "plaintext",
        (*control("e1-singleton-motif"), "training.support=2"),
        (("e1-singleton-motif", "server"), ("e2-subset-algebra", "server")),
    ),
    Defence(
        "prototypes-noised",
        BOUNDED,
        "local_dp",
        ("training.use_diversity=false", "protection.norm=1.0", "protection.multiplier=4.0"),
        tuple(
            (name, "server") for name in ("e1-singleton-motif", "e2-subset-algebra", "e3-round-differencing")
        ),
    ),
    Defence(
        "rounds-noised",
        SAGE,
        "distributed_dp",
        (*control("f1-cohort-differencing"), *NOISE, "protection.quorum=7"),
        (("f1-cohort-differencing", "server"),),
    ),
    Defence(
        "rounds-colluders",
        SAGE,
        "distributed_dp",
        ("rounds=2", *NOISE, "protection.quorum=3"),
        (("f2-own-share-subtraction", "coalition"),),
    ),
    Defence(
        "shadow-owners-masked",
        SAGE,
        "masked",
        (),
        (("a7-class-shares", "server"), ("a7-node-owner", "server")),
    ),
    Defence(
        "scores-masked",
        {**SAGE, "rounds": 10, "evaluation": "in_band"},
        "masked",
        (),
        (("i1-test-sizes", "server"), ("i2-constant-answers", "server")),
    ),
    Defence(
        "scores-limited",
        {**SAGE, "rounds": 10, "evaluation": "in_band"},
        "plaintext",
        ("broadcast.change=1.7", "broadcast.units=0.05"),
        (("i2-constant-answers", "server"),),
    ),
    Defence(
        "payoffs-valued",
        FAIR,
        "homomorphic",
        (
            "clients=30",
            "rounds=2",
            "training.hidden=16",
            "training.layers=2",
            "split.perturbed=true",
            "training.diversity=shared",
            "training.prototypes=none",
        ),
        (("e6-payoff-quality", "server"),),
    ),
    Defence(
        "lists-valued",
        FAIR,
        "homomorphic",
        (),
        (("e5-listed-members", "server"), ("e5-listed-members", "client")),
    ),
    Defence(
        "sizes-by-agreement",
        {**FAIR, "algorithm": "eu"},
        "plaintext",
        ("clients=2",),
        (("e6-payoff-sizes", "client"),),
    ),
    Defence(
        "standing-noised",
        SAGE,
        "distributed_dp",
        (*control("h5-standing-model"), *NOISE, "protection.quorum=7"),
        (("h5-standing-model", "server"),),
    ),
    Defence(
        "influence-noised",
        SAGE,
        "local_dp",
        ("rounds=20", "protection.norm=1.0", "protection.multiplier=4.0"),
        (("g4-node-likelihood-ratio", "outsider"), ("g7-link-teller", "outsider")),
    ),
    Defence(
        "released-noised",
        SAGE,
        "local_dp",
        ("rounds=20", "protection.norm=1.0", "protection.multiplier=4.0"),
        tuple(
            (name, "outsider")
            for name in ("g1-link-stealing", "g2-embedding-inversion", "g3-node-membership")
        ),
    ),
)


def run(defence: Defence, seeds: int, out: Path) -> list[dict[str, Any]]:
    """The cells of a defence, those of runs that it stopped among them."""
    chosen = load(None, {**defence.config, "policy": defence.policy}, list(defence.changes))
    kinds = list(dict.fromkeys(ATTACKS[name] for name, _ in defence.attacks))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = grid.audit(
            chosen,
            [defence.policy],
            kinds,
            range(seeds),
            out / defence.name,
            controls=(),
            effort=60,
            workers=1,
        )
    stopped = [
        {**row, "outcome": "run", "settings": {"aim": aim}}
        for row in found.not_run
        for aim in (SINGLE_OWNERS, RESIDUAL)
    ]
    return [*found.cells, *stopped]


def rows(defence: Defence, cells: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each attack and aim."""
    for attack, adversary in defence.attacks:
        for aim in (SINGLE_OWNERS, RESIDUAL):
            key = (attack, adversary, aim)
            mine = [c for c in cells if (c["attack"], c["adversary"], c["settings"]["aim"]) == key]
            scored = [c for c in mine if c["outcome"] == "score"]
            yield {
                "defence": defence.name,
                "attack": attack,
                "adversary": adversary,
                "aim": aim,
                "figure": next((c["metric"] for c in scored), ""),
                "score": [c["score"] for c in scored],
                "trivial": [c["baseline"] for c in scored],
                "leaks": [bool(c["leaks"]) for c in scored],
                "otherwise": sorted(
                    {f"{c['outcome']}: {c['reason']}" for c in mine if c["outcome"] != "score"}
                ),
            }


def outcome(row: Mapping[str, Any]) -> str:
    """What became of an attack, in words."""
    if row["score"]:
        leaks = sum(row["leaks"])
        return f"beyond trivial in {leaks} of {len(row['leaks'])}" if leaks else "no more than trivial"
    return "; ".join(row["otherwise"])[:90] or "not run"


def main() -> None:
    """Runs what is asked for, and prints the table."""
    found = collected(__doc__, DEFENCES, "runs/defences", lambda d, n, out: list(rows(d, run(d, n, out))))
    table = Table("defence", "attack", "by", "aim", "score", "trivial", "outcome", title="with a defence")
    for row in found:
        score = f"{told(row['score'])} {row['figure']}" if row["score"] else "-"
        trivial = told(row["trivial"])
        table.add_row(
            row["defence"], row["attack"], row["adversary"], row["aim"], score, trivial, outcome(row)
        )
    Console(width=None if Console().is_terminal else 220).print(table)


if __name__ == "__main__":
    main()
