"""Judges of what owners that lie do to the others: the same run with honest owners stands beside it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.attacks.active.lies import BACKDOOR, COST, TURNED_TO, liars, triggered
from secure_fedgraph.attacks.attack import Blind, Guess
from secure_fedgraph.audits import intervals, scoring
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Judge, Judgement
from secure_fedgraph.audits.rerun import train_again
from secure_fedgraph.federation import Federation
from secure_fedgraph.running.run import Run


def cost(guess: Guess, finished: FinishedRun) -> Judgement:
    """What the lie costs of the headline on all test data: that of an honest run, less that of this one."""
    honest, lied = _figures(finished)
    lost = honest["global"] - lied["global"]
    half = math.hypot(*(one["high"] - one["low"] for one in (honest, lied))) / 2
    score = scoring.Score(
        metric=f"{finished.result['headline']} lost",
        kind=scoring.ScoreKind.UNBOUNDED,
        value=lost,
        low=lost - half,
        high=lost + half,
        baselines={"no owner lies": 0.0},
        details=_details(finished),
    )
    return Judgement(score)


def backdoor(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of test nodes of other classes that the trigger turns to the liar's class.

    Trivial: how many it turns in the model of an honest run.
    """
    honest = _honest_run(finished)
    if finished.released is None or (beside := honest.algorithm.released(honest.state)) is None:
        raise Blind("no single model is released, in which a trigger could be tried")
    lied = _turned(finished.algorithm, finished.released, finished)
    score = scoring.Score(
        metric="turned by a trigger",
        kind=scoring.ScoreKind.UNBOUNDED,
        value=float(lied.mean()),
        **intervals.bounds(lambda error: intervals.share(int(lied.sum()), len(lied), error)),
        baselines={"an honest model": float(_turned(honest.algorithm, beside, finished).mean())},
        details=_details(finished),
    )
    return Judgement(score)


def _details(finished: FinishedRun) -> Mapping[str, float]:
    honest, lied = (one["global"] for one in _figures(finished))
    return {"honest": honest, "with liars": lied, "liars": float(len(liars(finished.federation.names)))}


def _turned(algorithm: Algorithm, model: State, finished: FinishedRun) -> np.ndarray:
    """For each test node of another class, whether the trigger makes the model say the liar's class."""
    found = list[np.ndarray]()
    for graph, tests, labels in _held_out(finished.federation):
        nodes, inputs = tests[labels[tests] != TURNED_TO], copy.copy(graph)
        inputs.x = triggered(inputs.x, nodes)
        with torch.no_grad():
            said = algorithm.predict(model, inputs, finished.federation.schema)[nodes].argmax(1)
        found.append((said == TURNED_TO).numpy())
    return np.concatenate(found)


def _held_out(federation: Federation) -> list[tuple[Data, torch.Tensor, torch.Tensor]]:
    """A graph, its test nodes and all labels: the referee's, or each owner's where only owners have tests."""
    tests = federation.referee.test_set
    if tests.tests:
        return [(tests.inputs, torch.cat(list(tests.tests.values())).unique(), tests.labels)]
    return [(graph, graph.test_mask.nonzero().flatten(), graph.y) for graph in federation.owners.values()]


def _figures(finished: FinishedRun) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """The headline on all test data with its interval, of an honest run and of this one."""
    headline = str(finished.result.get("headline"))
    honest = _honest_run(finished).metrics.get(headline, {})
    lied: Mapping[str, float] = finished.result.get("metrics", {}).get(headline, {})
    if not {"global", "low", "high"} <= honest.keys() & lied.keys():
        raise Blind("there is no score on all test data to compare: use evaluation=referee")
    return honest, lied


def _honest_run(finished: FinishedRun) -> Run:
    """The same run with honest owners; lies of one seed and policy share it."""
    kind: type[Algorithm] | None = getattr(type(finished.algorithm), "honest", None)
    if kind is None:
        raise Blind("its owners were honest: audit the algorithm, and a run with liars is made")
    honest = copy.copy(finished.algorithm)
    honest.__class__ = kind
    key = ("honest", repr(sorted(finished.result["config"].items(), key=repr)))
    played = replace(finished, algorithm=honest)
    return once(key, finished, lambda: train_again(played, finished.federation))


JUDGES: Mapping[str, Judge] = {COST: cost, BACKDOOR: backdoor}
