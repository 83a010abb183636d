"""The two attacks of the demonstration, and the models whose accuracy it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secure_fedgraph.attacks import ATTACKS, Blind, Guess, Knowledge
from secure_fedgraph.attacks.active.planted_units import PlantedUnits
from secure_fedgraph.audits import truth
from secure_fedgraph.core.message import ANSWER
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.federation import Federation
from secure_fedgraph.protocol.transcript import SERVER, everything
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


def price(name: str, run: Run, epsilon: float | str, everybody: str, own: str) -> dict[str, Any]:
    """What a model scores: on everybody's test nodes, and on each owner's own."""
    return {
        "name": name,
        "epsilon": epsilon,
        "everybody": run.accuracy[everybody],
        "own": run.accuracy[own],
    }


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
        price("every owner alone", private, 0.0, "own_global", "own"),  # nothing leaves
        price("together, under the budget", private, spent, "global", "personal"),
        price("together, without noise", free, "inf", "global", "local"),
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
