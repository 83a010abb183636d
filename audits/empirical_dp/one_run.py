"""The epsilon of a whole run, bounded from below by canaries over all that it sends.

The experiment runs once, or a few times with fresh coins and noise, each time under its own budget
(:mod:`~secure_fedgraph.audits.empirical_dp.canaries`). One bound needs fair coins only. For noise without
sampling, another takes canaries as independent trials: their directions share no coordinate.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedgraph.audits.empirical_dp.canaries import Planting
from secure_fedgraph.audits.empirical_dp.empirical import about, measured, not_audited
from secure_fedgraph.audits.empirical_dp.epsilon import Lower, gaussian, one_run, one_run_gaussian
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import in_form, make_federation
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.protocol.transcript import SERVER
from secure_fedgraph.running.loop import train
from secure_fedgraph.running.run import Run

CONFIDENCE = 0.999
ROUNDS = 5
"""The budget is planned over so many rounds at most: more rounds would show no more."""
CROWD = 50
"""Clients of a run, where clients are the unit and fewer were asked for."""
RUNS = 40
"""At most."""
UNSEEN = (
    "a break that is smaller than the gap between the bound and the claim; what an algorithm computes before "
    "the upload, for a canary replaces it here"
)


def one_run_rows(
    experiment: Experiment, canaries: int, confidence: float = CONFIDENCE
) -> list[dict[str, Any]]:
    """Rows like those of ``empirical_rows``, for all rounds of a run together.

    Args:
        experiment: with its policy and seed; where clients are the unit it runs with :data:`CROWD` of them.
        canaries: how many, over as many runs as that takes, up to :data:`RUNS`.
        confidence: that a right run is not accused.
    """
    rounds = min(experiment.rounds or ROUNDS, ROUNDS)
    # a ledger that others share is not charged for canaries, which are nobody's data
    short = experiment.model_copy(update={"rounds": rounds, "ledger": None})
    row = about("the whole run", f"all {rounds} rounds", experiment.unit, experiment.relation, UNSEEN)
    try:
        played = _canary_runs(short, canaries)
    except SecureFedGraphError as error:
        return [not_audited(str(error), row)]
    row |= {"unit": played[0].unit, "relation": played[0].relation}
    row["of"] += f", {len(played)} run{'s' * (len(played) > 1)}"
    claim = max(one.claim for one in played)
    ins, outs = (np.concatenate([getattr(one, key) for one in played]) for key in ("ins", "outs"))
    if min(len(ins), len(outs)) < 2:
        reason = f"only {len(ins) + len(outs)} canaries fit into {len(played)} runs: too few for a bound"
        return [not_audited(reason, row)]
    lower = _bound(short, ins, outs, confidence)
    row = measured(row, claim, lower, lower.refutes(claim), confidence)
    return [{**row, "trials": len(ins) + len(outs)}]


@dataclass(frozen=True)
class CanaryRun:
    """One run with canaries: its claim, and the server's scores of canaries that were in and out."""

    claim: float
    unit: str
    relation: str
    ins: np.ndarray
    outs: np.ndarray


def _canary_runs(experiment: Experiment, canaries: int) -> list[CanaryRun]:
    """Runs until there are enough canaries. A run that fails ends this; the earlier ones still count."""
    crowd, runs = _crowd(experiment), list[CanaryRun]()
    while len(runs) < RUNS:
        try:
            one = _run(crowd.model_copy(update={"seed": crowd.seed + len(runs)}))
        except SecureFedGraphError:
            if not runs:
                raise
            break
        runs.append(one)
        if not len(one.ins) + len(one.outs) or sum(len(p.ins) + len(p.outs) for p in runs) >= canaries:
            break
    return runs


def _crowd(experiment: Experiment) -> Experiment:
    """The experiment with :data:`CROWD` clients, where each client can be one canary only.

    It is unchanged where the data do not suffice for so many, and where clients answer each other: that work
    grows with the square of their number.
    """
    algorithm = experiment.make_algorithm()
    by_client = experiment.unit == Unit.CLIENT.value and not experiment.trains_under_noise
    peers = any(channel.to == "peer" for channel in algorithm.in_use)
    if not by_client or peers or experiment.clients >= CROWD:
        return experiment
    crowd = experiment.model_copy(update={"clients": CROWD})
    try:
        make_federation(crowd).check(algorithm, experiment.evaluation)
    except BadInput:
        return experiment
    return crowd


def planted(experiment: Experiment) -> tuple[Run, Planting]:
    """One run of an experiment whose clients send canaries.

    Raises:
        BadInput: where nothing that the server reads carries noise.
    """
    federation = make_federation(experiment)
    algorithm = in_form(experiment, federation)
    if algorithm.pools:
        raise BadInput(f"{algorithm.name} pools all data: owners send no upload that could carry canaries")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        protected = protect(experiment, algorithm, federation)
        bound = protected.policy.bind(algorithm.in_use, federation.names)
        planting = Planting(bound, federation.names, sub_seed(experiment.seed, "canaries"))
        read = {*planting.noised, *planting.trained}
        if not read:
            raise BadInput("nothing that the server reads carries noise: there is no claim to refute")
        run = train(
            planting.algorithm(type(algorithm))(**algorithm.settings.model_dump()),
            federation,
            protected.policy,
            rounds=experiment.rounds,
            seed=experiment.seed,
            budget=protected.budget,
            keep=lambda channel, round: channel in read,
            allow_plaintext=experiment.allow_plaintext,
        )
    return run, planting


def _run(experiment: Experiment) -> CanaryRun:
    run, planting = planted(experiment)
    steps = planting.bound.steps
    unit = steps.unit if steps else experiment.unit
    privacy = run.privacy(unit, experiment.delta)
    claim = float(
        {privacy["against"]: privacy["epsilon"], **privacy.get("readers", {})}.get(SERVER, math.inf)
    )
    if math.isinf(claim):
        raise BadInput(f"the run claims no finite epsilon for one {unit} against the server")
    return CanaryRun(claim, unit, str(privacy["relation"]), *planting.scores(run.transcript.view(SERVER)))


def _bound(experiment: Experiment, ins: np.ndarray, outs: np.ndarray, confidence: float) -> Lower:
    """The best of the bounds that hold; together they may be wrong as often as the confidence allows."""
    if experiment.trains_under_noise:  # steps on some of the records are no Gaussian mechanism
        return one_run(ins, outs, experiment.delta, confidence)
    part = 1 - (1 - confidence) / 3
    bounds = (
        one_run(ins, outs, experiment.delta, part),
        one_run_gaussian(ins, outs, experiment.delta, part),
        gaussian(ins, outs, experiment.delta, part, threshold=0.0),
    )
    best = max(bounds, key=lambda lower: (lower.epsilon, lower.ceiling))
    return replace(best, ceiling=max(lower.ceiling for lower in bounds))
