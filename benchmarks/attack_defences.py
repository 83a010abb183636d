"""Every attack against the policy that is meant to stop it, what that policy leaves, and what it costs.

    python benchmarks/attack_defences.py [--only weights] [--seeds 3] [--out runs/defences] [--table] [--json]
                                         [--costs | --no-costs]

The same settings under which ``attack_table.py`` shows the attack to succeed, with the defence on top. "Each
owner" is the attack itself; "what is left" is its second aim: what the defence still reveals, a sum over all
owners most often. Runs are kept and not repeated, so it can be stopped at any time. Noise is that of one
multiplier that is large enough to show; which epsilon it is worth stands in each run's result.

A second table says what each defence costs: points of accuracy, bytes that a client sends a round, processor
seconds a round, and which epsilon the defended run's ledger has for each unit. By default both tables are
made; ``--no-costs`` makes the first alone and ``--costs`` the second alone, so that two calls can work at the
same ``--out`` at once. ``--json`` prints both as ``attacks`` and ``costs``; what is not asked for is empty.

Costs are of runs of their own that nobody attacks, with the same seeds: 20 rounds of the algorithm at its
*defaults*, with the defence and without it. They are not taken under the settings of an attack: the accuracy
of one round, of a frozen model or of one training node is nobody's. What both runs share is what the defence
is of no use without: a form of the algorithm, owners who drop out, scores in band. Without the defence the
policy is ``plaintext``, or the one that the attack succeeds under: masks for A5, F1, F2 and H5, noise for B3.
Seconds are of all parties together, without the referee's, and what comes before the first round is shared
out over all. Bytes and seconds are ratios to the run without. Figures are means of seeds; an epsilon is the
largest of any.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attack_table import FREE, PLAIN, collected, options, told
from defence_costs import COST_ROUNDS, Pair, measure, table
from defence_costs import rows as cost_rows
from rich.console import Console
from rich.table import Table

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS


@dataclass(frozen=True)
class Defence:
    """A policy and settings, and the attacks that they are meant to stop.

    Args:
        name: what ``--only`` looks for.
        config: the experiment.
        policy: and with ``against`` the defence.
        changes: the settings under which the attacks succeed without it.
        attacks: each with the adversary that it is stopped for.
        against: what the defence changes, beside the policy.
        instead: what stands in its place where there is no defence, beside ``plaintext``.
        shared: settings of both runs that its cost is taken from, beside the algorithm's defaults.
    """

    name: str
    config: Mapping[str, Any]
    policy: str
    changes: Sequence[str]
    attacks: Sequence[tuple[str, str]]
    against: Sequence[str] = ()
    instead: Sequence[str] = ()
    shared: Sequence[str] = ()

    @property
    def attacked(self) -> Experiment:
        """What is attacked: the defence under the settings of the attacks."""
        return load(None, {**self.config, "policy": self.policy}, [*self.changes, *self.against])

    @property
    def pair(self) -> Pair:
        """The runs that the cost is the difference of."""
        last = {"rounds": COST_ROUNDS, "checkpoint_every": 0}
        scored = [f"evaluation={self.config['evaluation']}"] if "evaluation" in self.config else []
        if not scored:  # else scores are what is defended
            last["evaluate_every"] = COST_ROUNDS
        config = {**self.config, **last}
        return Pair(
            self.name,
            _in_words(self.policy, self.against),
            _in_words(PLAIN, self.instead),
            load(None, {**config, "policy": self.policy}, [*self.shared, *self.against]),
            load(None, {**config, "policy": PLAIN}, [*self.shared, *self.instead]),
            " ".join(one for one in (*scored, *self.shared) if not one.startswith("algorithm=")),
        )


def _in_words(policy: str, changes: Sequence[str]) -> str:
    """A policy, or the one that changes name, and the other changes."""
    named = dict(one.split("=", 1) for one in changes)
    return " ".join([named.pop("policy", policy), *(f"{key}={value}" for key, value in named.items())])


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
MORE = ("protection.norm=1.0", "protection.multiplier=4.0")
MASKS = ("policy=masked",)
DROPPING = ("clients=10", "dropouts=0.1")
RELEASED = ("algorithm=fedego-released",)
HOLDER = ("algorithm=glasu-one-label-holder", "training.backward=local", "split.labels=one")
PUBLIC = ("training.sampler=public",)
BOUNDED = {**FAIR, "algorithm": "fairgraphfl-bounded"}
ACROSS = ("training.mash=across",)
KEPT = control("b4-mash-dictionary")
ONE = control("a2-single-sample")
FULL = control("a4-label-counts")
BATCH = control("a3-relu-batch", 1)
GRAPH = control("a6-graph-structure", 1)
GRAPHS = {"algorithm": "apflgate", "data": "bbbp", "clients": 8, "rounds": 1}
LABELS = control("d5-gradient-labels")
DEFENCES = (
    Defence("weights-masked", SAGE, "masked", (), (("a1-vocabulary-support", "server"),)),
    Defence("weights-masked-single", SAGE, "masked", ONE, (("a2-single-sample", "server"),)),
    Defence("weights-masked-counts", SAGE, "masked", FULL, (("a4-label-counts", "server"),)),
    Defence("weights-noised", SAGE, "local_dp", (), (("a1-vocabulary-support", "server"),), NOISE),
    Defence("weights-noised-single", SAGE, "local_dp", ONE, (("a2-single-sample", "server"),), NOISE),
    Defence("weights-noised-counts", SAGE, "local_dp", FULL, (("a4-label-counts", "server"),), NOISE),
    Defence("batches-masked", SAGE, "masked", BATCH, (("a3-relu-batch", "server"),)),
    Defence("batches-noised", SAGE, "local_dp", BATCH, (("a3-relu-batch", "server"),), NOISE),
    Defence("graphs-masked", GRAPHS, "masked", GRAPH, (("a6-graph-structure", "server"),)),
    Defence("graphs-noised", GRAPHS, "local_dp", GRAPH, (("a6-graph-structure", "server"),), NOISE),
    Defence(
        "planted-noised",
        SAGE,
        "distributed_dp",
        control("a5-planted-units"),
        (("a5-planted-units", "server"),),
        NOISE,
        MASKS,
    ),
    Defence(
        "mashes-across",
        EGO,
        "masked",
        KEPT,
        tuple((f"b{n}", "server") for n in ("4-mash-dictionary", "5-mash-filter", "2-mash-labels")),
        ACROSS,
    ),
    Defence(
        "mashes-whole",
        EGO,
        "plaintext",
        ("training.hidden=[64,64]",),
        (("b1-mash-single", "server"),),
        instead=(*RELEASED, "training.batching=released"),
    ),
    Defence(
        "mashes-secret",
        EGO,
        "plaintext",
        (*control("b6-mash-mixing"), "rounds=5"),
        (("b6-mash-mixing", "server"),),
        ("training.batching=secret",),
        ("training.batching=seeded",),
        RELEASED,
    ),
    Defence(
        "mashes-once",
        EGO,
        "local_dp",
        (*control("b3-mash-average"), "rounds=5"),
        (("b3-mash-average", "server"),),
        ("training.mash_rounds=1",),
        ("policy=local_dp",),
        (*RELEASED, *NOISE),
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
        control("c3-neighgen-oracle"),
        (("c3-neighgen-oracle", "client"),),
        NOISE,
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
        (*control("d1-index-lists"), "rounds=4"),
        (("d1-index-lists", "server"), ("d1-index-union", "client")),
        PUBLIC,
    ),
    Defence("vertical-three", GLASU, "masked", (), (("d2-subtracted-rows", "client"),), PUBLIC),
    Defence(
        "vertical-masked",
        GLASU,
        "masked",
        (),
        (("d3-alike-rows", "server"), ("d3-alike-rows", "client")),
        PUBLIC,
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
        PUBLIC,
        shared=HOLDER,
    ),
    Defence(
        "columns-masked",
        GLASU,
        "masked",
        control("d7-blind-groups"),
        (("d7-blind-groups", "server"), ("d7-blind-groups", "last client")),
        PUBLIC,
        shared=HOLDER,
    ),
    Defence(
        "summed-noised",
        PLUS,
        "distributed_dp",
        ("training.feedback=prototypes",),
        (("c7-summed-members", "server"), ("c7-summed-members", "client")),
        NOISE,
        MASKS,
        ("training.feedback=prototypes",),
    ),
    Defence(
        "prototypes-support",
        FAIR,
        "plaintext",
        control("e1-singleton-motif"),
        (("e1-singleton-motif", "server"), ("e2-subset-algebra", "server")),
        ("training.support=2",),
    ),
    Defence(
        "prototypes-noised",
        BOUNDED,
        "local_dp",
        (),
        tuple(
            (name, "server") for name in ("e1-singleton-motif", "e2-subset-algebra", "e3-round-differencing")
        ),
        ("training.use_diversity=false", *MORE),
    ),
    Defence(
        "rounds-noised",
        SAGE,
        "distributed_dp",
        control("f1-cohort-differencing"),
        (("f1-cohort-differencing", "server"),),
        (*NOISE, "protection.quorum=7"),
        MASKS,
        DROPPING,
    ),
    Defence(
        "rounds-colluders",
        SAGE,
        "distributed_dp",
        ("rounds=2",),
        (("f2-own-share-subtraction", "coalition"),),
        (*NOISE, "protection.quorum=3"),
        MASKS,
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
        (),
        (("i2-constant-answers", "server"),),
        ("broadcast.change=1.7", "broadcast.units=0.05"),
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
        instead=("algorithm=dw",),
    ),
    Defence(
        "standing-noised",
        SAGE,
        "distributed_dp",
        control("h5-standing-model"),
        (("h5-standing-model", "server"),),
        (*NOISE, "protection.quorum=7"),
        MASKS,
        DROPPING,
    ),
    Defence(
        "personal-noised",
        {"algorithm": "local", **FREE, "clients": 10, "rounds": 10},
        "plaintext",
        (),
        (("g5-class-shares", "outsider"), ("g6-node-owner", "outsider")),
        ("steps.noise=4.0",),
    ),
    Defence(
        "influence-noised",
        SAGE,
        "local_dp",
        ("rounds=20",),
        (("g4-node-likelihood-ratio", "outsider"), ("g7-link-teller", "outsider")),
        MORE,
    ),
    Defence(
        "released-noised",
        SAGE,
        "local_dp",
        ("rounds=20",),
        tuple(
            (name, "outsider")
            for name in ("g1-link-stealing", "g2-embedding-inversion", "g3-node-membership")
        ),
        MORE,
    ),
)


def run(defence: Defence, seeds: int, out: Path) -> list[dict[str, Any]]:
    """The cells of a defence, those of runs that it stopped among them."""
    kinds = list(dict.fromkeys(ATTACKS[name] for name, _ in defence.attacks))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = grid.audit(
            defence.attacked,
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


def costs(given: argparse.Namespace) -> list[dict[str, Any]]:
    """What the defences cost that the command line asks for, run or read."""
    pairs = [one.pair for one in DEFENCES if given.only in one.name]
    if not given.table:
        measure(pairs, given.seeds, given.out / "costs")
    return cost_rows(pairs, given.seeds, given.out / "costs")


def attack_rows(found: Sequence[Mapping[str, Any]]) -> Table:
    """As printed."""
    made = Table("defence", "attack", "by", "aim", "score", "trivial", "outcome", title="with a defence")
    for row in found:
        score = f"{told(row['score'])} {row['figure']}" if row["score"] else "-"
        trivial = told(row["trivial"])
        made.add_row(
            row["defence"], row["attack"], row["adversary"], row["aim"], score, trivial, outcome(row)
        )
    return made


def main() -> None:
    """Runs what is asked for, and prints the tables."""
    parser = options(__doc__, "runs/defences")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--costs", action="store_true", help="what defences cost, and no attack")
    kind.add_argument("--no-costs", action="store_true", help="attacks alone")
    given = parser.parse_args()
    attacks = (
        [] if given.costs else collected(given, DEFENCES, lambda d, n, out: list(rows(d, run(d, n, out))))
    )
    spent = [] if given.no_costs else costs(given)
    if given.json:
        print(json.dumps({"attacks": attacks, "costs": spent}, indent=1))
        return
    console = Console(width=None if Console().is_terminal else 220)
    if not given.costs:
        console.print(attack_rows(attacks))
    if not given.no_costs:
        console.print(table(spent))


if __name__ == "__main__":
    main()
