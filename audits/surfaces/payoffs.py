"""Judges of what payoffs give away: who is of low quality, and how many graphs the others have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from secure_fedgraph.attacks.attack import CLIENT, Guess
from secure_fedgraph.attacks.payoffs import DIFFERENT, GRAPHS_OF_OTHERS, OWN_GRAPHS, QUALITY
from secure_fedgraph.audits import intervals, scoring
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker


def spoilt(finished: FinishedRun) -> dict[str, float]:
    """Agent -> the share of its links that was rewired; empty where no agent's were."""
    facts = finished.federation.facts.get("partition", {})
    shares = facts.get("rewired", {})
    return {agent: float(shares[group]) for agent, group in facts.get("quality", {}).items()}


def differ(finished: FinishedRun) -> bool:
    """Whether agents' data differ in quality."""
    return len(set(spoilt(finished).values())) > 1


def own_graphs(finished: FinishedRun) -> int:
    """The training graphs of the agent that the audit puts in the place of a curious one."""
    return _training(finished, finished.parties(CLIENT))


def quality(guess: Guess, finished: FinishedRun) -> Judgement:
    """Of all pairs of agents of different quality, the share in which the better one has the higher score.

    Ties count half. An agent is in many pairs, so the interval is of agents: its variance is the jackknife's.
    Trivial: a coin.
    """
    rewired = spoilt(finished)
    agents = [agent for agent in guess.values if agent in rewired]
    clean = -np.array([rewired[agent] for agent in agents])
    scores = np.array([float(guess.values[agent][0]) for agent in agents])
    value = concordance(scores, clean)
    without = np.array([concordance(*_less(scores, clean, i)) for i in range(len(agents))])
    variance = (len(agents) - 1) * float(np.nanvar(without))
    _, many = np.unique(clean, return_counts=True)
    score = scoring.Score(
        metric="auc",
        kind=scoring.ScoreKind.UNBOUNDED,
        value=value,
        **intervals.bounds(lambda error: intervals.area(value, variance, int(many.min()), (), error)),
        baselines={"random": 0.5},
        details={"agents": float(len(agents)), "qualities": float(len(many))},
    )
    return Judgement(
        score,
        {agent: np.array([rewired[agent]]) for agent in agents},
        {agent: np.round(guess.values[agent], 6) for agent in agents},
    )


def concordance(scores: np.ndarray, better: np.ndarray) -> float:
    """The share of pairs that differ in ``better`` in which the better one scores more; ties count half.

    >>> concordance(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 1]))
    1.0
    """
    above = better[:, None] > better[None]
    if not above.any():
        return float("nan")
    wins = (scores[:, None] > scores[None]) + 0.5 * (scores[:, None] == scores[None])
    return float(wins[above].mean())


def sizes(guess: Guess, finished: FinishedRun) -> Judgement:
    """Whether the number of training graphs is exact. Trivial: as many at each agent as one has oneself."""
    ((target, named),) = guess.values.items()
    owners = guess.targets[target]
    true, equal = _training(finished, owners), own_graphs(finished) * len(owners)
    hit = abs(float(named[0]) - true) < 0.5
    score = scoring.Score(
        metric="sizes exact",
        kind=scoring.ScoreKind.UNBOUNDED,
        value=float(hit),
        **intervals.bounds(lambda error: intervals.share(float(hit), 1, error)),
        baselines={"as many as one's own": float(equal == true)},
        details={"off_by": abs(float(named[0]) - true), "trivial_off_by": float(abs(equal - true))},
    )
    return Judgement(score, {target: np.array([true])}, {target: np.round(named, 3)})


def _less(scores: np.ndarray, better: np.ndarray, agent: int) -> tuple[np.ndarray, np.ndarray]:
    return np.delete(scores, agent), np.delete(better, agent)


def _training(finished: FinishedRun, owners: tuple[str, ...]) -> int:
    return sum(int(finished.federation.owners[owner].train_mask.sum()) for owner in owners)


JUDGES: Mapping[str, Judge] = {QUALITY: quality, GRAPHS_OF_OTHERS: sizes}
MAKERS: Mapping[str, Maker] = {DIFFERENT: differ, OWN_GRAPHS: own_graphs}
