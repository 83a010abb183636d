"""The epsilon of a whole run, bounded from below by canaries: all that it sends put together.

A run, or a few with fresh coins and noise, each a real one of the experiment under its own budget
(:mod:`audits.canaries`). Two bounds are taken: one that needs nothing but fair coins, and for noise without
sampling one over canaries as independent trials, which their directions make them.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from audits.canaries import Planting
from audits.empirical import BROKEN, HOLDS, UNAUDITED, WEAK
from audits.epsilon import Lower, gaussian, one_run, one_run_gaussian
from secure_fedgraph.budgeted import protect
from secure_fedgraph.config import Experiment
from secure_fedgraph.errors import BadInput, SecureFedGraphError
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.protocol.channel import Unit
from secure_fedgraph.protocol.transcript import SERVER
from secure_fedgraph.results import make_federation
from secure_fedgraph.train import Run, train

CONFIDENCE = 0.999
ROUNDS = 5
"""The budget is planned over so many rounds at most: more of them would show no more of it."""
CROWD = 50
"""Clients of a run, where clients are the unit and fewer were asked for."""
RUNS = 40
"""At most."""
UNSEEN = (
    "a smaller break than lies between the bound and the claim; what an algorithm makes of its data before "
    "the upload, for that is a canary's here"
)


def one_run_rows(
    experiment: Experiment, canaries: int, confidence: float = CONFIDENCE
) -> list[dict[str, Any]]:
    """A row as :func:`audits.empirical.empirical_rows` gives them, for all rounds of a run together.

    Args:
        experiment: with its policy and seed; where clients are the unit it runs with :data:`CROWD` of them.
        canaries: how many, over as many runs as that takes, up to :data:`RUNS`.
        confidence: that a right run is not accused.
    """
    short = experiment.model_copy(update={"rounds": min(experiment.rounds or ROUNDS, ROUNDS)})
    about = {
        "noise": "the whole run",
        "of": f"all {short.rounds} rounds",
        "unit": experiment.unit,
        "relation": experiment.relation,
        "reader": SERVER,
        "unseen": UNSEEN,
    }
    try:
        runs, claim, ins, outs = _scores(_crowd(short), canaries)
        lower = _bound(short, ins, outs, confidence)
    except SecureFedGraphError as error:
        return [{**about, "outcome": UNAUDITED, "reason": str(error)}]
    about["of"] += f", {runs} run{'s' * (runs > 1)}"
    broken = lower.refutes(claim)
    told = {
        "claim": claim,
        "delta": experiment.delta,
        "lower": lower.epsilon,
        "ceiling": lower.ceiling,
        "trials": len(ins) + len(outs),
        "method": lower.method,
        "confidence": confidence,
        "outcome": BROKEN if broken else WEAK if lower.ceiling <= claim else HOLDS,
        "reason": "",
    }
    return [{**about, **told}]


def _crowd(experiment: Experiment) -> Experiment:
    """With a crowd of clients, where each can be one canary only; as it is where the data have none."""
    if experiment.unit != Unit.CLIENT.value or experiment.clients >= CROWD:
        return experiment
    crowd = experiment.model_copy(update={"clients": CROWD})
    try:
        make_federation(crowd)
    except BadInput:
        return experiment
    return crowd


def _scores(experiment: Experiment, canaries: int) -> tuple[int, float, np.ndarray, np.ndarray]:
    """How many runs, the claim of each, and the scores of canaries that were in and out."""
    ins: list[np.ndarray] = []
    outs: list[np.ndarray] = []
    claim, runs = math.inf, 0
    while runs < RUNS and (not runs or sum(map(len, (*ins, *outs))) < canaries):
        claim, (inside, outside) = _run(experiment.model_copy(update={"seed": experiment.seed + runs}))
        ins.append(inside)
        outs.append(outside)
        runs += 1
    found = np.concatenate(ins), np.concatenate(outs)
    if min(map(len, found)) < 2:
        raise BadInput(f"{sum(map(len, found))} canaries had room in {runs} runs: too few for a bound")
    return runs, claim, *found


def planted(experiment: Experiment) -> tuple[Run, Planting]:
    """One run of an experiment whose clients send canaries.

    Raises:
        BadInput: where nothing that the server reads carries noise.
    """
    algorithm, federation = experiment.make_algorithm(), make_federation(experiment)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = protect(experiment, algorithm, federation).policy
        bound = policy.bind(algorithm.in_use, federation.names)
        planting = Planting(bound, federation.names, sub_seed(experiment.seed, "canaries"))
        if not planting.noised and bound.steps is None:
            raise BadInput("nothing that the server reads carries noise: there is no claim to refute")
        run = train(
            planting.algorithm(type(algorithm))(**algorithm.settings.model_dump()),
            federation,
            policy,
            rounds=experiment.rounds,
            seed=experiment.seed,
            keep=lambda channel, round: True,
        )
    return run, planting


def _run(experiment: Experiment) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
    """What one run claims against the server, and the scores of its canaries."""
    run, planting = planted(experiment)
    steps = planting.bound.steps
    told = run.privacy(steps.unit if steps else experiment.unit, experiment.delta)
    claim = float({told["against"]: told["epsilon"], **told.get("readers", {})}.get(SERVER, math.inf))
    if math.isinf(claim):
        raise BadInput(f"the run claims no finite epsilon for one {experiment.unit} against the server")
    return claim, planting.scores(run.transcript.view(SERVER))


def _bound(experiment: Experiment, ins: np.ndarray, outs: np.ndarray, confidence: float) -> Lower:
    """The best of the bounds that hold, each with its part of what is left of the confidence."""
    if experiment.trains_under_noise:  # steps on some of the records are no Gaussian mechanism
        return one_run(ins, outs, experiment.delta, confidence)
    part = 1 - (1 - confidence) / 3
    found = (
        one_run(ins, outs, experiment.delta, part),
        one_run_gaussian(ins, outs, experiment.delta, part),
        gaussian(ins, outs, experiment.delta, part, threshold=0.0),
    )
    best = max(found, key=lambda lower: (lower.epsilon, lower.ceiling))
    return replace(best, ceiling=max(lower.ceiling for lower in found))
