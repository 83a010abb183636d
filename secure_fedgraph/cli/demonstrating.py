"""The work of ``demo``: two attacks in the open and under a budget, what the budget costs, and the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from secure_fedgraph.attacks import ATTACKS, Blind, Guess, Knowledge
from secure_fedgraph.attacks.active.planted_units import PlantedUnits
from secure_fedgraph.audits import truth
from secure_fedgraph.cli.options import command_line
from secure_fedgraph.cli.screen import Screen, plain_warnings
from secure_fedgraph.core.message import ANSWER
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import execute, fresh_folder, make_federation, write_json
from secure_fedgraph.experiment.schema import DemoResult, as_read
from secure_fedgraph.federation import Federation
from secure_fedgraph.protocol.transcript import SERVER, everything
from secure_fedgraph.report.page import write_report
from secure_fedgraph.report.sections.demo_page import sentence
from secure_fedgraph.running.run import Run

LABELS, NODES = "a4-label-counts", PlantedUnits.id
TRAINED: Mapping[str, Any] = {
    "algorithm": "fedsage",
    "clients": 3,
    "training": {"hidden": [256, 32], "optimizer": "sgd", "learning_rate": 1.0, "batch": "full", "epochs": 1},
}
"""What is attacked: whole-batch steps, of which an update is the plain gradient."""
ROUNDS = 4
"""In which the server plants weights."""
BUDGET: Mapping[str, Any] = {"policy": "distributed_dp", "unit": "node", "epsilon": 2.0}


def trained(values: Mapping[str, Any], **changes: Any) -> Experiment:
    """The experiment that is attacked, under a policy."""
    training = {**TRAINED["training"], **changes.pop("training", {})}
    norm = {"protection": {"norm": 1.0}} if "epsilon" in values else {}
    unscored = {"evaluation": "at_home"}  # only attacks read it
    return load(None, {**TRAINED, **unscored, **norm, **values, **changes, "training": training}, ())


def labels_scene(
    values: Mapping[str, Any], federation: Federation
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What a server that follows the protocol reads of each owner's training labels, from one round.

    Args:
        values: data, seed and policy.
        federation: the owners.

    Returns:
        Owner by owner the counts, true and read; and what was sent.
    """
    experiment = trained(values, rounds=1, training={"head": "zeros"})
    run = execute(experiment, None, keep=everything, federation=federation)
    guess, reason = _guess(LABELS, run)
    true = truth.label_counts(run.federation)
    rows = []
    for owner, counts in sorted(true.items()):
        read = None if guess is None else np.rint(guess.values[owner] * counts.sum()).astype(int).tolist()
        rows.append({"owner": owner, "true": counts.astype(int).tolist(), "read": read})
    return rows, _sent(run, reason)


def nodes_scene(values: Mapping[str, Any], federation: Federation) -> tuple[dict[str, Any], dict[str, Any]]:
    """Which nodes a server names that plants weights in its broadcast.

    It reads single uploads, and where it cannot, their sum.

    Args:
        values: data, seed and policy.
        federation: the owners.

    Returns:
        How many nodes were named, how many of them are right in every word, and one of these; and what was
        sent.
    """
    experiment = trained(values, rounds=ROUNDS)
    run = execute(experiment, None, keep=everything, federation=federation, plays=PlantedUnits.plays)
    guess, reason = _guess(NODES, run)
    if guess is None:
        guess = PlantedUnits().residual(run.transcript.view(SERVER), Knowledge())
    rows = np.concatenate(list(guess.values.values()))
    right, example = 0, None
    for row in rows:
        owner, node, words = _with_words(row, truth.node_features(run.federation))
        right += bool(owner)
        if owner and example is None:
            read = np.flatnonzero(row).tolist()
            example = {"owner": owner, "node": node, "true": words, "read": read}
    return {"named": len(rows), "right": right, "node": example}, _sent(run, reason)


def _with_words(row: np.ndarray, features: Mapping[str, np.ndarray]) -> tuple[str, int, list[int]]:
    """The owner and place of a node that has exactly these words, and its words; no owner where none has."""
    for owner, mine in sorted(features.items()):
        same = np.flatnonzero((mine == row).all(1))
        if len(same):
            return owner, int(same[0]), np.flatnonzero(mine[same[0]]).tolist()
    return "", 0, []


def prices(values: Mapping[str, Any], federation: Federation) -> list[dict[str, Any]]:
    """Accuracy under the budget, beside owners by themselves and beside no privacy.

    Args:
        values: data and seed.
        federation: the owners.
    """
    ridge = {"algorithm": "fedridge", "clients": 3, **values}
    form = {"training": {"second_moments": "own"}}  # class sums alone carry less noise
    private = execute(load(None, {**ridge, **BUDGET, **form}, ()), None, federation=federation)
    free = execute(load(None, {**ridge, "policy": "masked"}, ()), None, federation=federation)
    spent = private.privacy("node")["epsilon"]
    return [
        {"name": name, "epsilon": epsilon, "everybody": run.accuracy[everybody], "own": run.accuracy[own]}
        for name, run, epsilon, everybody, own in (
            ("every owner alone", private, 0.0, "own_global", "own"),  # nothing leaves
            ("together, under the budget", private, spent, "global", "personal"),
            ("together, without noise", free, "inf", "global", "local"),
        )
    ]


def _guess(attack: str, run: Run) -> tuple[Guess | None, str]:
    """What the server computes from single uploads; or nothing, and why."""
    view = run.transcript.view(SERVER)
    try:
        return ATTACKS[attack]().run(view, Knowledge()), ""
    except Blind as blind:
        return None, str(blind)


def _sent(run: Run, reason: str) -> dict[str, Any]:
    bound = run.policy["update"]
    sent = (one for one in run.transcript.sent if one.recipient == SERVER)
    uploads = sum(1 for one in sent if (one.channel, one.step) == ("update", ANSWER))
    return {
        "reason": reason,
        "uploads": uploads,
        "readable": uploads if bound.carrier.gives.readable else 0,
        "epsilon": run.privacy("node")["epsilon"],
    }


FACTS = ("source", "digest", "nodes", "features", "classes")


def demo(out: Path, data: str, seed: int, overwrite: bool, **flags: Any) -> None:
    """Attacks training in the open and under a budget, and shows what was read and what the budget costs."""
    screen, started = Screen(flags), time.perf_counter()
    fresh_folder(out, overwrite)
    with screen.bar("reading the data", 6) as advance, plain_warnings():
        result = shown(data, seed, advance)
    result |= {"command": command_line(), "seconds": round(time.perf_counter() - started, 1)}
    write_json(out / "demo.json", result)
    page = write_report(out)
    screen.say(f"{sentence(as_read(DemoResult, result))}\nReport: {page}", result)


def shown(data: str, seed: int, advance: Callable[..., None]) -> dict[str, Any]:
    """The result, without the command and its seconds.

    Args:
        advance: counts a part that is done.
    """
    values = {"data": data, "seed": seed}
    federation = make_federation(load(None, {**values, "algorithm": "fedsage", "clients": 3}, ()))
    facts = federation.facts
    advance("attacks in the open")
    in_the_open = scene({**values, "policy": "plaintext"}, federation)
    advance("the same attacks under masks")
    masked = scene({**values, "policy": "masked"}, federation)
    advance("the same attacks under a budget")
    protected = scene({**values, **BUDGET}, federation)
    advance("what the budget costs")
    costs = prices(values, federation)
    advance("the page")
    return {
        "schema": "secure-fedgraph/demo/1",
        "seed": seed,
        "data": {"name": facts["data"], **{key: facts[key] for key in FACTS}},
        "owners": list(federation.names),
        "open": in_the_open,
        "masked": masked,
        "protected": protected,
        "prices": costs,
    }


def scene(values: dict[str, Any], federation: Federation) -> dict[str, Any]:
    """Both attacks under one policy."""
    labels, first = labels_scene(values, federation)
    nodes, second = nodes_scene(values, federation)
    noised = "epsilon" in values
    return {
        "policy": values["policy"],
        "epsilon": first["epsilon"] if noised else "inf",
        "labels": labels,
        **nodes,
        "uploads": first["uploads"] + second["uploads"],
        "readable": first["readable"] + second["readable"],
        "reasons": [reason for reason in (first["reason"], second["reason"]) if reason],
    }
