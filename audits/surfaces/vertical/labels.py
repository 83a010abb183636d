"""Labels on a split by columns without the classifier: what is granted, and the judges."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from secure_fedgraph.attacks.attack import LAST, Guess
from secure_fedgraph.attacks.vertical.completion import COMPLETED, LABELLED, completed
from secure_fedgraph.attacks.vertical.label_groups import GROUPS
from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.scoring import Score, ScoreKind
from secure_fedgraph.audits.surfaces.vertical.knowledge import by_columns
from secure_fedgraph.graph.seeds import sub_seed

EACH = 4
"""Labelled training nodes of each class."""
SHOWN = 12


def labelled(finished: FinishedRun) -> np.ndarray | None:
    """``[nodes]`` the label of four random training nodes of each class, -1 of all others."""
    if not by_columns(finished):
        return None
    rng = np.random.default_rng(sub_seed(finished.seed, "labelled nodes"))
    y, training = _labels(finished)
    known = np.full(len(y), -1)
    for one in np.unique(y[training]):
        nodes = np.flatnonzero(training & (y == one))
        known[rng.permutation(nodes)[:EACH]] = one
    return known


def groups(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of nodes in the group that the best one-to-one assignment gives their class.

    Trivial: the commonest class, and groups of the same sizes drawn by chance.
    """
    y, _ = _labels(finished)
    hits, nodes, chance, common = [], [], 0, 0
    rng, true, guessed, many = np.random.default_rng(0), {}, {}, []
    for target, of in guess.values.items():
        seen = np.flatnonzero(of >= 0)
        named = _assigned(of[seen], y[seen])
        hits.append(named == y[seen])
        nodes.append(seen)
        shuffled = rng.permutation(of[seen])
        chance += int((_assigned(shuffled, y[seen]) == y[seen]).sum())
        common += int(np.bincount(y[seen]).max(initial=0)) if len(seen) else 0
        many.append(len(np.unique(of[seen])))
        true[target], guessed[target] = y[seen][:SHOWN], named[:SHOWN]
    baselines = {"groups drawn by chance": chance, "the commonest class": common}
    details = {"groups": float(np.mean(many)) if many else 0.0}
    return _judged("grouped right", hits, nodes, baselines, details, true, guessed)


def completions(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of nodes whose class is right, of those whose label was not granted.

    Trivial: the commonest class, and the same completion from the last owner's own features, averaged over
    its own links.
    """
    y, _ = _labels(finished)
    known = labelled(finished)
    assert known is not None
    (owner,) = finished.parties(LAST)
    own = completed(_smoothed(finished, owner), known, finished.federation.schema.classes)
    hits, nodes, baselines, true, guessed = [], [], {"the commonest class": 0, "own features": 0}, {}, {}
    for target, of in guess.values.items():
        seen = np.flatnonzero(of >= 0)
        hits.append(of[seen] == y[seen])
        nodes.append(seen)
        baselines["own features"] += int((own[seen] == y[seen]).sum())
        baselines["the commonest class"] += int(np.bincount(y[seen]).max(initial=0)) if len(seen) else 0
        true[target], guessed[target] = y[seen][:SHOWN], of[seen][:SHOWN].astype(int)
    return _judged("labels right", hits, nodes, baselines, {}, true, guessed)


def _judged(
    metric: str,
    hits: list[np.ndarray],
    nodes: list[np.ndarray],
    baselines: Mapping[str, int],
    details: Mapping[str, float],
    true: Mapping[str, np.ndarray],
    guessed: Mapping[str, np.ndarray],
) -> Judgement:
    # a guess about nobody has nothing to put together
    hit = np.concatenate([np.zeros(0, dtype=bool), *hits])
    node = np.concatenate([np.zeros(0, dtype=int), *nodes])
    of = max(len(hit), 1)
    score = Score(
        metric,
        float(hit.sum()) / of,
        kind=ScoreKind.UNBOUNDED,
        **intervals.bounds(lambda error: intervals.clustered_share(hit, node, error)),
        baselines={name: right / of for name, right in baselines.items()},
        details={"nodes": float(len(hit)), **details},
    )
    return Judgement(score, true, guessed)


def _labels(finished: FinishedRun) -> tuple[np.ndarray, np.ndarray]:
    """Labels and which nodes train: of the owner that holds labels, the first."""
    graph = finished.federation.owners[finished.federation.names[0]]
    return graph.y.numpy(), torch.as_tensor(graph.train_mask).numpy()


def _smoothed(finished: FinishedRun, owner: str) -> np.ndarray:
    graph = finished.federation.owners[owner]
    x = graph.x.double().numpy()
    source, target = graph.edge_index.numpy()
    total, many = x.copy(), np.ones(len(x))
    np.add.at(total, target, x[source])
    np.add.at(many, target, 1)
    smoothed: np.ndarray = total / many[:, None]
    return smoothed


def _assigned(of: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Each row's class by the best assignment of one class to each group; -1 for groups that get none."""
    if not len(of):
        return np.zeros(0, dtype=int)
    table = np.zeros((int(of.max()) + 1, int(y.max()) + 1), dtype=int)
    np.add.at(table, (of, y), 1)
    rows, columns = linear_sum_assignment(-table)
    named = np.full(len(table), -1)
    named[rows] = columns
    labels: np.ndarray = named[of]
    return labels


MAKERS: Mapping[str, Maker] = {LABELLED: labelled}
JUDGES: Mapping[str, Judge] = {GROUPS: groups, COMPLETED: completions}
