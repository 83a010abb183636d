"""The controls of every attack: it must succeed, it must be stopped, and it must read what is left.

Positive: nothing protects the channel. Negative: the defence that should stop it, where it is blind or no
better than a trivial guess. Residual: turned on what the defence still reveals, it must succeed again.

A case names a base, a policy, the settings over it, and what the score must be: ``value``, ``low``,
``baseline``, ``leaks``, ``verdict`` or a figure of its details, each a number or a range; ``beyond`` is how
far the value is above the trivial guess; ``blind`` is what the attack says where it reads nothing.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

import pytest
from attacked import guessed, judged, made

from secure_fedgraph.attacks import ATTACKS, Blind
from secure_fedgraph.audits.finished_run import FinishedRun

ABOVE = 1e9
ONE_LABEL = {"algorithm": "glasu-one-label-holder", "split.labels": "one"}


def synthetic(nodes: int, features: int, **more: Any) -> dict[str, Any]:
    return {"data": "synthetic-citation", "dataset": {"nodes": nodes, "features": features}, **more}


# fmt: off
NOISE = {"norm": 1.0, "multiplier": 10.0}
NEIGHGEN = {"hidden": [8, 4], "encoder": [8, 16]}
BASES: dict[str, dict[str, Any]] = {
    "words": synthetic(300, 600, protection=NOISE),
    "cora": {"data": "cora"},
    "sums": synthetic(300, 100, protection={"norm": 1.0, "multiplier": 1.0, "quorum": 3}),
    "planted": synthetic(
        600, 300, rounds=3, training={"hidden": [128, 32], "epochs": 1}, protection={**NOISE,
            "multiplier": 1.0}
    ),
    "molecules": {
        "algorithm": "apflgate",
        "data": "synthetic-molecules",
        "dataset": {"graphs": 200},
        "clients": 6,
        "protection": NOISE,
    },
    "mashes": synthetic(
        300, 200, algorithm="fedego", partition="random", rounds=5,
        training={"hidden": [32, 32], "epochs": 1, "batch": 16},
    ),
    "neighgen": synthetic(
        120, 80, algorithm="fedsage+", rounds=1,
        training={**NEIGHGEN, "generator_hidden": [16, 256], "generator_epochs": 2, "federated_epochs": 2,
                  "minimum_batch": 1, "exchange_batch": 8},
    ),
    "oracle": synthetic(
        120, 80, algorithm="fedsage+", rounds=1,
        training={**NEIGHGEN, "generator_hidden": [16, 96], "generator_epochs": 1, "federated_epochs": 2},
    ),
    "classes": synthetic(
        300, 200, algorithm="fedsage+", rounds=1,
        training={"feedback": "prototypes", "hidden": [4, 4], "encoder": [4, 4], "generator_epochs": 1,
                  "federated_epochs": 0},
    ),
    "columns": synthetic(150, 60, algorithm="glasu", rounds=1),
    "labels": synthetic(
        200, 60, rounds=1, algorithm="glasu-one-label-holder", split={"labels": "one"},
        training={"sampler": "public", "public_nodes": 200, "hidden": 16, "steps": 20, "dropout": 0.0},
    ),
    "motifs": {"algorithm": "fairgraphfl", "data": "proteins", "allow_plaintext": True, "rounds": 1,
               "training": {"hidden": 16, "layers": 2}},
    "payoffs": {"data": "synthetic-molecules", "rounds": 1, "training": {"hidden": 8, "layers": 2}},
    "scores": synthetic(200, 40, evaluation="in_band", rounds=5),
    "released": synthetic(300, 100, rounds=20),
    "owners": synthetic(400, 100, clients=6, rounds=5),
}
# fmt: on
DATA = {"cora": "planetoid", "motifs": "tu"}


def case(
    attack: str,
    base: str,
    policy: str = "plaintext",
    changes: dict[str, Any] | None = None,
    who: str = "",
    aim: str = "run",
    blind: str = "",
    plays: bool = False,
    slow: bool = False,
    **wanted: Any,
) -> Any:
    (attack,) = [name for name in ATTACKS.own if name.startswith(attack)]
    marks = [pytest.mark.needs_data(DATA[base])] if base in DATA else []
    marks += [pytest.mark.slow] if slow else []
    changed = json.dumps(changes or {}, sort_keys=True)
    mark = hashlib.sha256(f"{changed}{plays}{blind}".encode()).hexdigest()[:4]  # others may be put before it
    name = "-".join(filter(None, (attack, base, policy, who.split(" ")[0], aim[:3], mark)))
    return pytest.param(attack, base, policy, changed, who, aim, blind, plays, wanted, marks=marks, id=name)


def left(*given: Any, **more: Any) -> Any:
    return case(*given, aim="residual", **more)


@cache
def run(base: str, policy: str, changes: str, played: str) -> FinishedRun:
    settings = [f"{key}={json.dumps(value)}" for key, value in json.loads(changes).items()]
    plays = ATTACKS[played].plays if played else None  # type: ignore[attr-defined]
    return made(BASES[base], policy, *settings, plays=plays)


def control(attack: str, number: int = 0, **more: Any) -> dict[str, Any]:
    (kind,) = [kind for name, kind in ATTACKS.own.items() if name.startswith(attack)]
    return {**kind.controls[number].settings, **more}


def of(prefix: str, **settings: Any) -> dict[str, Any]:
    return {f"{prefix}.{key}": value for key, value in settings.items()}


def t(**settings: Any) -> dict[str, Any]:
    return of("training", **settings)


# fmt: off
HIDING = ("masked", "homomorphic")
ROUNDS, ONE_NODE = {"rounds": 3}, control("a2")
STEP, GRAPH = control("a4"), control("a6")
NODES = control("a3", 1, **t(share=0.03))
WEIGHTS = [
    case("a1", "words", changes=ROUNDS, precision=1.0, recall=(0.999, 1), leaks=True),
    case(
        "a1",
        "words",
        changes={"rounds": 2, **t(epochs=10, fanout=[8, 8])},
        verdict="exact",
    ),
    case(
        "a1",
        "words",
        changes={"rounds": 1, **of("dataset", features=60, values="dense")},
        verdict="nothing to learn: a trivial guess is exact",
    ),
    case("a1", "words", "local_dp", ROUNDS, auc=(0.4, 0.6), leaks=False),
    # next to no noise: the control above is the noise's doing, and not the clip's
    case("a1", "words", "local_dp", {**ROUNDS, **of("protection", multiplier=1e-9)}, auc=(0.95, 1)),
    case("a1", "words", changes={"algorithm": "locsage"}, blind="no channel 'update'"),
    *(
        left("a1", "words", p, ROUNDS, precision=1.0, recall=(0.995, 1), leaks=True)
        for p in ("plaintext", *HIDING)
    ),
    *(
        case(attack, "words", policy, one, blind=f"{attack}.*: every upload of channel 'update' .* {policy}")
        for policy, attack, one in (
            *(("masked", *each) for each in (("a1", ROUNDS), ("a2", ONE_NODE), ("a3", NODES), ("a4", STEP))),
            ("homomorphic", "a1", ROUNDS),
        )
    ),
    case("a1", "cora", changes={"rounds": 4}, precision=1.0, recall=(0.999, 1)),
    *(
        case("a2", "words", changes={**ONE_NODE, "seed": seed}, verdict="exact",
             asked_for=3, neighbour_means_right=3, baseline=(0, 0.1))
        for seed in range(3)
    ),
    case("a2", "words", changes={**ONE_NODE, **t(share=1.0)}, value=0, leaks=False),
    case("a2", "words", "local_dp", ONE_NODE, value=0, leaks=False),
    left("a2", "words", "masked", ONE_NODE, value=1, distinct_nodes=3),
    left("a2", "words", "masked", {**ONE_NODE, **t(share=1.0)}, found=0),
    case("a2", "cora", changes=ONE_NODE, slow=True, value=1),
    left("a2", "cora", "masked", ONE_NODE, slow=True, value=1),
    case("a3", "words", changes=NODES, value=(0.9, 1), asked_for=(10, ABOVE), leaks=True),
    case(
        "a3",
        "words",
        changes={
            "algorithm": "fedego",
            "rounds": 1,
            "dataset.nodes": 600,
            "split.local_tests": 20,
            **t(optimizer="sgd", learning_rate=1.0, epochs=1, share=0.01, batch=4, fanout=[2, 2]),
            **t(hidden=[128, 128]),
        },
        value=(0.6, 1),
        leaks=True,
    ),
    case("a3", "words", "local_dp", NODES, value=0, leaks=False),
    case("a3", "words", changes={"rounds": 1}, value=0, leaks=False),  # an epoch of Adam
    left("a3", "words", "masked", {**NODES, **t(hidden=[512, 32])}, value=(0.7, 1), leaks=True),
    case("a3", "molecules", changes={"algorithm": "gin-fedavg", "rounds": 1}, blind="no first layer"),
    case("a4", "words", changes=STEP, verdict="exact", l1_labels=0, baseline=(0, 0.9)),
    case("a4", "words", changes=ROUNDS, leaks=False),  # an epoch of Adam is far off
    case("a4", "words", "local_dp", STEP, leaks=False),
    left("a4", "words", "masked", STEP, value=(0.9999, 1), leaks=True),
    case("a4", "cora", changes=STEP, verdict="exact", l1_labels=(0, 1e-9)),
    case("a4", "molecules", changes={"algorithm": "gin-fedavg", "rounds": 1}, blind="GraphSAGE"),
    *(
        left("a5", "planted", "masked", {"clients": clients, **plain}, plays=True,
             rows_named=(20, ABOVE), share_that_are_nodes=(0.95, 1), leaks=True)
        for clients in (3, 6)
        for plain in ({}, t(optimizer="sgd", learning_rate=1.0))
    ),
    case("a5", "planted", "masked", plays=True, blind="masked"),
    case("a5", "planted", plays=True, share_that_are_nodes=(0.95, 1), leaks=True),
    left("a5", "planted", "masked", rows_named=0),  # an honest server
    left("a5", "planted", "distributed_dp", plays=True, rows_named=0),
    case("a6", "molecules", changes=GRAPH, graphs=6, value=(0.8, 1), leaks=True,
         baseline=(0, 0.2)),
    case("a6", "molecules", changes={**GRAPH, **t(batch=4)}, value=(0.6, 1), leaks=True),
    case("a6", "molecules", "masked", GRAPH, blind="a6"),
    case("a6", "molecules", "local_dp", GRAPH, value=0, leaks=False),
    case("a6", "molecules", changes={"algorithm": "gin-fedavg", "rounds": 1, "clients": 3},
         value=0, leaks=False),
    # one or two of six at this seed, by the processor's rounding: masks hide whose they are, and nothing else
    left("a6", "molecules", "masked", {**GRAPH, **t(hidden=[256] * 3)}, value=(1 / 6, 1)),
    case("a6", "molecules", changes={**GRAPH, **t(network="gcn", hidden=[32, 32])},
         blind="no graph isomorphism network"),
    case("a6", "molecules", changes={**GRAPH, "data": "bbbp", "dataset": {}}, slow=True,
         value=(0.4, 1)),
]

OTHER = {"algorithm": "fedego-released"}
LONELY = {**OTHER, **t(batch=59)}  # of 60 nodes one is left over
SEEDED = {**OTHER, **t(batching="seeded", batch=8)}
DENSE = {**LONELY, **of("dataset", values="dense", features=60)}
REPEATED = {**of("protection", norm=1000.0, multiplier=3e-4), **t(reduction="frozen")}
BOUNDED = {**OTHER, **t(reduction="frozen", hidden=[128, 128]), **of("protection", norm=5.0, multiplier=4.0)}
ACROSS = t(mash="across", batch=8)
MASHES = [
    case("b1", "mashes", changes=LONELY, verdict="exact", asked_for=(8, ABOVE), baseline=(0, 0.1)),
    case("b1", "mashes", changes={**LONELY, "rounds": 1}, value=(0, 0.5)),
    case("b1", "mashes", changes={**DENSE, "rounds": 10}, verdict="exact", baseline=0),
    case("b1", "mashes", changes={**DENSE, "rounds": 1, **t(hidden=[256, 256])}, verdict="exact"),
    case("b1", "mashes", changes={**DENSE, "dataset.features": 100}, blind="too few, or too alike"),
    case("b1", "mashes", blind="no mash is of one ego-graph alone"),
    left("b1", "mashes", "masked", {**ACROSS, **OTHER}, blind="nothing of one is left"),
    case("b2", "mashes", changes=OTHER, verdict="exact", l1_labels=0, labels=179),
    case("b2", "mashes", "local_dp", BOUNDED, leaks=False),
    left("b2", "mashes", "masked", {**ACROSS, **OTHER}, verdict="exact"),
    case("b3", "mashes", "local_dp", {**OTHER, **REPEATED, "rounds": 50, **t(hidden=[128, 128])},
         slope=(-0.56, -0.44), rmse_after_1=(0.255, 0.345), low=(0.8, 1), leaks=True),
    case("b3", "mashes", "local_dp", {**OTHER, **REPEATED, "rounds": 20, **t(reduction="trained")},
         value=(0.7, 1), cells=12 * 4),  # label shares alone: the rows moved
    case("b3", "mashes", blind="no two rounds send the same mash"),
    case("b3", "mashes", "local_dp", {**OTHER, **REPEATED, "rounds": 3, **t(mash_rounds=1)},
         blind="released in one round only"),
    left("b3", "mashes", "distributed_dp", {**ACROSS, **OTHER, **REPEATED, "rounds": 20,
         **of("protection", norm=100.0, multiplier=0.01)}, slope=(-0.65, -0.35), leaks=True),
    case("b4", "mashes", changes=OTHER, value=(0.9, 1), baseline=(0, 0.1)),
    case("b4", "mashes", changes={"rounds": 1, **t(hidden=[256, 256])}, value=(0.85, 1)),
    case("b4", "mashes", "local_dp", BOUNDED, beyond=(-1, 0.1)),
    left("b4", "mashes", "masked", {**ACROSS, **OTHER}, leaks=True, members=120),
    case("b5", "mashes", changes=OTHER, value=(0.95, 1)),
    case("b5", "mashes", changes={**OTHER, "rounds": 1}, value=(0.7, 0.95)),
    case("b5", "mashes", leaks=True),  # training nodes in secret batches too
    case("b5", "mashes", "local_dp", BOUNDED, beyond=(-1, 0.1)),
    # it is the noise that stops them, and neither the clip nor the frozen reduction
    *(
        case(attack, "mashes", "local_dp", {**BOUNDED, "protection.multiplier": 1e-9}, value=(0.9, 1))
        for attack in ("b2", "b4", "b5")
    ),
    left("b5", "mashes", "masked", ACROSS, leaks=True),
    case("b6", "mashes", changes={**SEEDED, "rounds": 12}, verdict="exact", rank=59),
    case("b6", "mashes", changes={**SEEDED, "rounds": 3}, value=(0, 0.9), rank=(0, 24)),
    case("b6", "mashes", blind="batches are secret"),
    left("b6", "mashes", "masked", {**SEEDED, **ACROSS, "rounds": 8, **t(mashes=40)},
         value=(0.95, 1), unknowns=179),
    *(
        case(kind.id, "mashes", "masked", {**ACROSS, **OTHER},
             blind="'egos_across' is masked under policy masked")
        for kind in ATTACKS.own.values()
        if kind.family == "mash"
    ),
    *(
        case(attack, "cora", policy, control(attack, **more), slow=True, **wanted)
        for attack, policy, more, wanted in (
            ("b1", "plaintext", {}, {"value": (0.95, 1)}),
            ("b2", "plaintext", {}, {"value": 1}),
            ("b3", "local_dp", {}, {"slope": (-0.55, -0.45)}),
            ("b4", "plaintext", {}, {"value": (0.9, 1)}),
            ("b5", "plaintext", {"rounds": 1}, {"value": (0.78, 1)}),
            ("b6", "plaintext", {}, {"value": 1}),
        )
    ),
]

ONE, EIGHT = t(exchange_batch=1), t(exchange_batch=8)
SEALED = "'feedback' is sealed under policy masked, sealed"
WIDE = t(encoder=[8, 32], generator_hidden=[64, 64], federated_epochs=4)
GENERATOR = [
    *(
        case(attack, "neighgen", changes=ONE, who=who, verdict="exact", baseline=(0, 0.2))
        for attack in ("c1", "c2-neighgen-batch")
        for who in ("server", "client")
    ),
    *(
        case(attack, "neighgen", changes=EIGHT, value=1, leaks=True)
        for attack in ("c2-neighgen-batch", "c2-neighgen-columns")
    ),
    case("c1", "neighgen", changes={**ONE, "dataset.values": "dense"}, value=1, baseline=0),
    case("c2-neighgen-batch", "neighgen", changes={**EIGHT, "dataset.values": "dense"}, value=1, baseline=0),
    case("c1", "neighgen", changes=EIGHT, value=(0, 0.2)),
    *(
        case(attack, "neighgen", "strictest", EIGHT, who=who, blind=f"{attack}.*: .*{SEALED}")
        for attack in ("c1", "c2-neighgen-batch")
        for who in ("server", "client")
    ),
    left("c2-neighgen-batch", "neighgen", "strictest", EIGHT, who="server",
         blind="no sum of channel 'feedback'"),
    *(
        left("c2-neighgen-batch", "neighgen", policy, size, who="client", value=1)
        for policy in ("plaintext", "strictest")
        for size in (ONE, EIGHT)
    ),
    left("c1", "neighgen", "strictest", ONE, who="client", value=(0, 0.999)),
    case("c1", "neighgen", "local_dp", {**of("protection", norm=1.0, multiplier=10.0)},
         who="client", leaks=False),  # it holds the key of the seal, and reads noise
    case("c2-neighgen-batch", "cora", "strictest", {"algorithm": "fedsage+", **control("c2-neighgen-batch",
         1)},
         who="client", slow=True, blind="sealed"),
    left("c2-neighgen-batch", "cora", "strictest", {"algorithm": "fedsage+", **control("c2-neighgen-batch",
         1)},
         who="client", slow=True, value=1),
    case("c3", "oracle", plays=True, value=(0.99, 1), share_that_are_nodes=1, baseline=0),
    case("c3", "oracle", "masked", plays=True, blind="sealed under policy masked"),
    left("c3", "oracle", "masked", plays=True, value=(0.95, 1)),
    case("c3", "oracle", changes=t(exchange_batch=8, minimum_batch=8, federated_epochs=1),
         plays=True, value=(0, 0.6)),  # fewer rows take more messages
    case("c3", "oracle", changes=t(exchange_batch=8, minimum_batch=8, federated_epochs=8),
         plays=True, value=(0.75, 1)),
    case("c3", "oracle", blind="offered an honest generator"),
    case("c3", "oracle", changes={**WIDE, "dataset.values": "dense"}, plays=True,
         value=(0.95, 1), share_that_are_nodes=1),
    left("c3", "oracle", "masked", {**WIDE, "dataset.values": "dense"}, plays=True,
         value=(0.8, 1)),
    *(
        case("c7", "classes", who=who, value=(0.8, 1)) for who in ("server", "client")
    ),
    *(case("c5-embedding-links", "neighgen", p, EIGHT, who=w, value=(0.8, 1), leaks=True)
      for p, w in (("plaintext", "server"), ("strictest", "client"))),
    *(case(f"c5-embedding-{one}", "neighgen", "strictest", EIGHT, blind="sealed")
      for one in ("features", "links", "counts")),
    left("c5-embedding-links", "neighgen", changes=EIGHT, blind="no sum of them is left"),
    *(case("c6", "sums", changes={"algorithm": "fedgcn", "rounds": 1}, who=w, value=(0.9, 1), leaks=True)
      for w in ("server", "client")),
    case("c6", "sums", "masked", {"algorithm": "fedgcn", "rounds": 1}, blind="neighbour_sums"),
    case("c7", "classes", changes=t(anonymity=1), value=(0.97, 1)),
    case("c7", "classes", "masked", blind="masked"),
    *(
        left("c7", "classes", "masked", who=who, value=(0.9, 1)) for who in ("server", "client")
    ),  # k-anonymity is no guarantee
    left("c7", "classes", "distributed_dp", of("protection", norm=1.0, multiplier=1.2),
         value=(0, 0.7), tpr_at_1_percent=(0, 0.2)),
    *(
        case(attack, "words", changes={"rounds": 1}, blind="no channel")
        for attack in ("c1", "c3", "c5-embedding-links", "c6",
                       "c7")
    ),
]

ONE_HOP = t(layers=2, aggregated=[1, 2], hidden=8, steps=20)
ROWS = t(hidden=16, steps=8, sampler="public", public_nodes=120)
TWO = {"clients": 2, **t(accept_two_clients=True)}
HOLDER = {**ROWS, **ONE_LABEL, **t(backward="local", steps=12)}
LAST = "last client"
GRADIENTS = ("d5-gradient-labels", "d5-gradient-clusters")
COLUMNS = [
    case("d1-index-lists", "columns", changes={**ONE_HOP, "rounds": 6}, value=(0.85, 1), auc=(0.98, 1),
         baseline=(0, 0.2), leaks=True),
    case("d1-index-lists", "columns", changes={**ONE_HOP, "rounds": 6, **t(layers=4, aggregated=[2, 4])},
         value=(0.1, 0.85)),  # two hops say less
    case("d1-index-lists", "columns", changes={**ONE_HOP, "rounds": 2, **t(sampler="public",
         public_nodes=60)},
         leaks=False, auc=(0.4, 0.6)),  # from the seeds, which is all there is
    case("d1-index-lists", "columns", changes={**ONE_HOP, **t(sampler="full")}, blind="no channel 'sample'"),
    left("d1-index-lists", "columns", changes={**ONE_HOP, "rounds": 6}, value=(0.8, 1), leaks=True),
    case("d1-index-union", "columns", changes={**ONE_HOP, **TWO, "rounds": 6}, value=(0.7, 1), leaks=True),
    case("d1-index-union", "columns", changes={**ONE_HOP, "rounds": 6}, blind="of 2 others the union shows"),
    left("d1-index-union", "columns", changes={**ONE_HOP, "rounds": 6}, leaks=True),
    *(case("d2", "columns", p, {**ROWS, **TWO}, verdict="exact") for p in ("plaintext", "masked")),
    case("d2", "columns", "masked", ROWS, blind="2 other owners show as their mean only"),
    left("d2", "columns", "masked", ROWS, value=1,
         **{"largest_error_about_owner-1": (0.1, ABOVE)}),  # the mean of both, and neither's
    case("d3", "columns", changes=ROWS, beyond=(0.05, 1), leaks=True),
    case("d3", "columns", "masked", ROWS, blind="every upload of channel 'hidden' is masked"),
    left("d3", "columns", "masked", ROWS, leaks=True),
    case("d3", "columns", "masked", ROWS, who="client", blind="their mean only"),
    left("d3", "columns", "masked", ROWS, who="client", value=(0.55, 1)),
    *(case(a, "columns", changes=HOLDER, who=w, value=(0.99, 1), leaks=True) for a in GRADIENTS
      for w in ("server", LAST)),
    *(case(a, "columns", "masked", HOLDER,
        blind="every upload of channel 'gradient' is sealed") for a in GRADIENTS),
    *(case(a, "columns", "masked", HOLDER, who=LAST, value=(0.99, 1)) for a in GRADIENTS),
    *(left(a, "columns", "masked", {**ROWS, **t(backward="server", steps=12)}, value=(0.99, 1))
      for a in GRADIENTS),
    case("d5-gradient-labels", "columns", "masked", {**ROWS, **t(backward="server", steps=12)}, who=LAST,
         blind="every owner holds the labels itself"),
    *(case("d7", "labels", who=who, value=(0.99, 1), leaks=True) for who in ("server", LAST)),
    case("d7", "labels", "masked", who="server", blind="d7"),
    left("d7", "labels", changes=t(learning_rate=1e-6), who=LAST, value=(0, 0.6)),
    case("d8-model-completion", "labels", changes=t(learning_rate=1e-6), who=LAST, leaks=False),
    case("d8-model-completion", "labels", changes={"rounds": 8, **t(learning_rate=0.05)}, who=LAST,
         value=(0.5, 1)),
    left("d8-model-completion", "labels", who=LAST, blind="aggregate of all owners"),
    case("d8-leaning-completion", "labels", changes=t(learning_rate=1e-6), plays=True, leaks=False),
]

EACH = t(prototypes="each", idf="global")
SUMMED = t(prototypes="sum", idf="global")
APART = {"algorithm": "fairgraphfl-bounded", **control("e3")}
MANY = {"clients": 30, **t(rings=8, prototypes="none")}
UNREAD = {"clients": 4, **t(vocabulary="public", lists="valued", valuation="encrypted")}
SPOILT = {"clients": 30, "split.perturbed": True}
MOTIFS = [
    case("e1", "motifs", changes=EACH, value=1, claimed=(21, ABOVE), largest_error=(0, 1e-6)),
    case("e1", "motifs", changes=t(prototypes="each"), blind="no counts were sent"),
    case("e1", "motifs", changes={**EACH, **t(support=2)}, claimed=0, leaks=False),
    case("e1", "motifs", changes=t(prototypes="none"), blind="no channel 'prototypes'"),
    left("e1", "motifs", "strictest", SUMMED, value=1, claimed=(1, ABOVE)),
    case("e2", "motifs", changes=EACH, solved=(31, ABOVE), largest_error=(0, 1e-4), leaks=True),
    case("e2", "motifs", changes={"algorithm": "fairgraphfl-bounded", **t(lists="chosen")},
         blind="no channel 'prototypes'"),
    # 54 % with rings up to 6 and 30 clients, 7.5 % with 4 and 10, every motif kept
    case("e2", "motifs", changes={**EACH, "clients": 30, **t(motif_keep=1.0, rings=6)},
         value=(0.5, 0.65)),
    case("e2", "motifs", changes={**EACH, **t(motif_keep=1.0)}, value=(0.05, 0.1)),
    left("e2", "motifs", "strictest", SUMMED, right=(1, ABOVE)),
    case("e3", "motifs", changes=APART, value=1, of_the_right_owner=1),
    case("e3", "motifs", "strictest", APART, blind="'motif_sums' is masked"),
    case("e3", "motifs", "local_dp", {**APART, **of("protection", norm=1.0, multiplier=4.0)},
         value=0, leaks=False),
    left("e3", "motifs", "strictest", APART, value=1, embedding_error=(0, 1e-3)),
    case("e5", "motifs", changes=MANY, value=(0.55, 1), leaks=True),
    case("e5", "motifs", "homomorphic", UNREAD, blind="e5"),
    left("e5", "motifs", "homomorphic", UNREAD, leaks=False),
    case("e5", "motifs", changes={"clients": 4}, who="client", blind="e5"),
    case("e5", "payoffs", changes={"algorithm": "dw"}, blind="nobody has motifs"),
    case("e6-payoff-quality", "motifs", changes={**SPOILT, **t(diversity="shared", prototypes="none")},
         value=(0.95, 1), leaks=True),
    case("e6-payoff-quality", "payoffs", changes={**SPOILT, "algorithm": "dw"}, leaks=False),
    case("e6-payoff-quality", "payoffs", changes={"algorithm": "dw"}, blind="all of one quality"),
    left("e6-payoff-quality", "payoffs", changes={"algorithm": "dw"},
         blind="the budget, which everybody knows"),
    case("e6-payoff-sizes", "payoffs", changes={"algorithm": "dw", "clients": 2, "partition": "dirichlet"},
         value=1, off_by=(0, 1e-6), trivial_off_by=(1.1, ABOVE), leaks=True),
    case("e6-payoff-sizes", "payoffs", changes={"algorithm": "dw", "clients": 5}, blind="4 agents share"),
    left("e6-payoff-sizes", "payoffs", changes={"algorithm": "dw", "clients": 5}, off_by=(0, 1e-6)),
    case("e6-payoff-sizes", "payoffs", changes={"algorithm": "eu", "clients": 2}, blind="not paid by size"),
]

DRIFTING, STANDING = control("f1"), control("h5")
TOGETHER = [
    case("f1", "sums", "masked", DRIFTING, value=(0.9, 1), updates=(2, ABOVE), leaks=True),
    case("f1", "sums", "masked", {"rounds": 5}, blind="cohorts whose differences single nobody"),
    left("f1", "sums", "masked", {"rounds": 5},
         verdict="nothing to learn: a trivial guess is exact"),
    case("f1", "sums", "distributed_dp", {**DRIFTING, "protection.quorum": 7},
         value=(-1, 0.1), leaks=False),
    *(case("f2", "sums", p, ROUNDS, verdict="exact") for p in ("plaintext", "masked")),
    case("f2", "sums", "masked", ROUNDS, who="client", blind="2 owners are outside"),
    left("f2", "sums", "masked", ROUNDS, who="client", verdict="exact"),
    case("f2", "sums", "masked", {"rounds": 1}, blind="it takes two rounds"),
    case("f2", "sums", "masked", {**ROUNDS, **t(weighted=True)}, blind="no plain mean"),
    case("f2", "sums", "distributed_dp", ROUNDS, value=(-1, 0.1), leaks=False),
    case("f8", "sums", changes={"rounds": 1}, blind="no client adds noise"),
    case("f8", "sums", "local_dp", {"rounds": 1}, value=(-1, 0.3), leaks=False),
    left("f8", "sums", "distributed_dp", {"rounds": 1}, value=(-1, 0.3), leaks=False),
    case("h5", "sums", "masked", STANDING, plays=True, largest_relative_error=(0, 1e-4)),
    case("f1", "sums", "masked", STANDING, largest_relative_error=(0.01, ABOVE)),
    case("h5", "sums", "masked", ROUNDS, plays=True, blind="single nobody out"),
    case("f1", "cora", "masked", DRIFTING, slow=True, value=(0.9, 1), leaks=True),
    case("f2", "cora", "masked", {"rounds": 2}, slow=True, value=(0.9, 1), leaks=True),
]

LEARNED, NOT_YET = t(learning_rate=0.01), {"rounds": 1, **t(learning_rate=1e-6)}
NOISED = {**LEARNED, **of("protection", norm=0.1, multiplier=1.0)}
LONG = {**LEARNED, "rounds": 20, "clients": 3}
RIDGE, LOCAL = {"algorithm": "fedridge"}, {"algorithm": "local"}
NO_MODEL = "no model that classifies nodes was released"
MODELS = [
    *(case("g1", "released", p, LEARNED, value=(0.7, 1), leaks=True) for p in ("plaintext", "masked")),
    left("g1", "released", changes=LEARNED, value=(0.5, 0.7)),  # what alike features say
    case("g2", "released", changes=LEARNED, leaks=True),
    left("g2", "released", changes=LEARNED, leaks=True),
    # a random model's embedding is a random projection of the words
    case("g2", "released", "local_dp", NOISED, leaks=True),
    case("g3", "released", changes=LEARNED, value=(0.7, 1), low=(0.6, 1), leaks=True),
    case("g3", "released", changes=NOT_YET, leaks=False),
    # the noise is the operating system's: four standard errors, and not two
    case("g3", "released", "local_dp", NOISED, value=(0.3, 0.7)),
    left("g3", "released", changes=LEARNED, leaks=True),
    *(case("g4", "owners", changes=one, low=(0.55, 1), leaks=True)
      for one in (RIDGE, LONG, {**LONG, **LOCAL})),
    case("g4", "owners", changes=NOT_YET, low=(0, 0.5)),
    left("g4", "owners", changes=RIDGE, leaks=True),
    case("g4", "released", "masked", {"rounds": 2, "epsilon": 4, "unit": "node"},
         low=(0, 0.6)),  # the form that a budget takes
    case("g5", "owners", changes={**LEARNED, **LOCAL}, leaks=True),
    case("g5", "owners", changes=LEARNED, blind="no owner's own model"),
    left("g5", "owners", changes=LEARNED, blind="nodes that nobody trained on say"),
    case("g6", "owners", changes={**LOCAL, "rounds": 20, "clients": 3, **t(learning_rate=0.003)},
         leaks=True),
    case("g6", "owners", changes=LEARNED, blind="the same whoever holds a node"),
    *(case("g7", "owners", changes=one, value=(0.95, 1), f1_at_as_many_links=(0.5, 1))
      for one in (RIDGE, LEARNED)),
    left("g7", "owners", changes=LEARNED, value=(0.5, 0.95)),
    *(case("a7-class-shares", "owners", changes=one, value=(0.85, 1), leaks=True) for one in (RIDGE,
        LEARNED)),
    case("a7-class-shares", "owners", "masked", LEARNED, blind="masked"),
    case("a7-class-shares", "owners", "local_dp", NOISED, leaks=False),
    left("a7-class-shares", "owners", "masked", LEARNED, value=(0.85, 1)),
    *(case("a7-node-owner", "owners", changes=one, value=(0.7, 1), leaks=True)
      for one in (RIDGE, {**LEARNED, **t(epochs=5)})),
    case("a7-node-owner", "owners", "masked", LEARNED, blind="masked"),
    left("a7-node-owner", "owners", "masked", LEARNED, blind="whoever of them holds a node"),
    case("a7-node-owner", "owners", "local_dp", NOISED, leaks=False),
    *(case(a, "molecules", changes={"algorithm": "gin-fedavg", "rounds": 1}, blind=NO_MODEL)
      for a in ("g1", "g2", "g3", "g7")),
    case("g1", "cora", slow=True, value=(0.84, 1), leaks=True),
    case("g2", "cora", slow=True, leaks=True),
    case("g3", "cora", slow=True, low=(0.7, 1)),
]

CLIENTS_BUDGET = {"algorithm": "fedavg", "epsilon": 8, "unit": "client", "rounds": 1}
NODES_BUDGET = {"algorithm": "fedridge", "epsilon": 0.2, "unit": "node", "rounds": 1,
    **t(second_moments="own")}
SCORES = [
    case("i1", "scores", changes={"rounds": 20}, value=1, leaks=True),
    case("i1", "scores", "masked", blind="masked"),
    left("i1", "scores", "masked", blind="no denominator"),
    *(case(a, "scores", changes={"evaluation": "at_home"}, blind="no channel")
      for a in ("i1", "i2", "i3")),
    case("i2", "scores", plays=True, value=1, leaks=True),
    case("i2", "scores", blind="no class could be planted"),
    case("i2", "scores", "masked", plays=True, blind="masked"),
    left("i2", "scores", "masked", plays=True, value=(0.999, 1)),
    case("i3", "scores", value=(0.999, 1), leaks=True),
    case("i3", "scores", "masked", blind="masked"),
    left("i3", "scores", "masked", value=(0.999, 1)),
    left("i3", "scores", "distributed_dp", NODES_BUDGET, value=(0, 0.95)),
    case("i3", "scores", "distributed_dp", CLIENTS_BUDGET, blind="no channel 'scores'"),
]

# fmt: on


@pytest.mark.filterwarnings("ignore::secure_fedgraph.privacy.policy.PlaintextWarning")
@pytest.mark.parametrize(
    ("attack", "base", "policy", "changes", "who", "aim", "blind", "plays", "wanted"),
    [*WEIGHTS, *MASHES, *GENERATOR, *COLUMNS, *MOTIFS, *TOGETHER, *MODELS, *SCORES],
)
def test_an_attack_reads_what_it_should_and_nothing_else(
    attack: str,
    base: str,
    policy: str,
    changes: str,
    who: str,
    aim: str,
    blind: str,
    plays: bool,
    wanted: dict[str, Any],
) -> None:
    finished = run(base, policy, changes, attack if plays else "")
    made_for = ATTACKS[attack](4.0 if attack.startswith("a3") else None)
    if blind:
        with pytest.raises(Blind, match=blind):
            guessed(finished, made_for, who, aim)
        return
    score = judged(finished, made_for, who, aim)
    for name, one in wanted.items():
        got = score.value - score.baseline if name == "beyond" else getattr(score, name, None)
        got = score.details[name] if got is None else got
        if isinstance(one, bool | str):
            assert got == one, (name, score)
        else:
            low, high = one if isinstance(one, tuple) else (one, one)
            assert low <= got <= high, (name, score)


def test_every_attack_has_its_controls() -> None:
    cases = [*WEIGHTS, *MASHES, *GENERATOR, *COLUMNS, *MOTIFS, *TOGETHER, *MODELS, *SCORES]
    succeed = {one.values[0] for one in cases if not one.values[6]}
    # of these two the measured score is the trivial one: docs/attacks/neighgen.md
    reading = {name for name, kind in ATTACKS.own.items() if not kind.harms}
    assert reading - succeed == {"c5-embedding-counts", "c5-embedding-features"}
