"""Mashes: what attackers are granted, and judges of labels, averages, members and who was mixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F

from secure_fedgraph.algorithms.fedego import released
from secure_fedgraph.algorithms.fedego.algorithm import FedEgo
from secure_fedgraph.algorithms.fedego.released import FedEgoReleased
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.feature_sums import SummedMembers
from secure_fedgraph.attacks.mashes import pool as from_pool
from secure_fedgraph.attacks.mashes.labels import BATCH_LABELS, NOISED, prefixes
from secure_fedgraph.audits import intervals, scoring, truth
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.client import seeded
from secure_fedgraph.core.errors import Refused
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.ego.mash import one_hot

SHOWN = 3
"""Batches that are kept for pictures."""


def candidates(finished: FinishedRun) -> np.ndarray:
    """``[candidates, features]``: all that nodes of the data set look like, in an order that tells nothing.

    Nodes that look the same are one candidate. Where owners overlap, these are the nodes of all owners and of
    the referee's graph. Empty where an algorithm sends neither mashes nor sums of features.
    """
    federation = finished.federation
    sums = any(one.name in SummedMembers.reads() for one in finished.algorithm.in_use)
    if federation.schema.kind != "node" or not (sums or isinstance(finished.algorithm, FedEgo)):
        return np.zeros((0, federation.schema.features))
    if federation.pool is not None:
        everybody = federation.pool.x.numpy()
    else:
        asked = getattr(federation.referee.test_set.inputs, "x", None)
        parts = [graph.x.numpy() for graph in federation.owners.values()]
        everybody = np.concatenate([*parts, *([] if asked is None else [asked.numpy()])])
    rows = np.unique(everybody, axis=0)
    order = np.random.default_rng(sub_seed(finished.seed, "candidates")).permutation(len(rows))
    return rows[order]


def drawn(finished: FinishedRun, owner: str, round: int) -> np.ndarray:
    """``[mashes, n]``: numbers of an owner's training nodes in its batches of a round; -1 where one is short.

    Raises:
        Refused: where batches are secret.
    """
    if _secret(finished):
        raise Refused("batches that the operating system drew cannot be drawn again")
    settings = cast(FedEgoReleased, finished.algorithm).settings
    size = int(finished.federation.owners[owner].train_mask.sum())
    generator = partial(seeded, sub_seed(finished.seed, "clients"), owner, round)
    return released.numbered(size, settings, released.order_of(settings, torch.randperm, generator)).numpy()


def mixing(finished: FinishedRun) -> dict[str, dict[int, tuple[np.ndarray, int]]]:
    """Owner -> round -> its batches by number, and how many training nodes it has; empty where secret."""
    if _secret(finished):
        return {}
    rounds = _rounds(finished)
    return {
        owner: {t: (drawn(finished, owner, t), int(graph.train_mask.sum())) for t in rounds}
        for owner, graph in finished.federation.owners.items()
    }


def training_rows(finished: FinishedRun, owner: str) -> np.ndarray:
    """``[training nodes, features]``, in the order that numbers count in."""
    graph = finished.federation.owners[owner]
    return np.asarray(graph.x[graph.train_mask].numpy())


def _secret(finished: FinishedRun) -> bool:
    """Whether only the operating system knew which nodes were mashed together."""
    algorithm = finished.algorithm
    return not isinstance(algorithm, FedEgoReleased) or algorithm.settings.batching == "secret"


def _frozen(finished: FinishedRun) -> bool:
    """Whether the reduction was never trained."""
    return (
        isinstance(finished.algorithm, FedEgoReleased) and finished.algorithm.settings.reduction == "frozen"
    )


def _rounds(finished: FinishedRun) -> list[int]:
    return sorted({note.round for note in finished.transcript.sent if note.channel.startswith("egos")})


def _histograms(finished: FinishedRun, owner: str) -> np.ndarray:
    """``[mashes, classes]`` labels of an owner's batches in the first round."""
    graph, classes = finished.federation.owners[owner], finished.federation.schema.classes
    labels = graph.y[graph.train_mask].numpy()
    batches = drawn(finished, owner, _rounds(finished)[0])
    return np.stack([np.bincount(labels[b[b >= 0]], minlength=classes) for b in batches])


def batch_labels(guess: Guess, finished: FinishedRun) -> Judgement:
    """Histograms of batches, where these can be drawn again; else of all of an owner's batches together."""
    secret = _secret(finished)
    counts = truth.label_counts(finished.federation)
    guesses: dict[str, np.ndarray] = {}
    true: dict[str, np.ndarray] = {}
    whose: dict[str, str] = {}
    for target, owners in guess.targets.items():
        guessed = guess.values[target]
        if secret:
            whose[target] = target
            size = sum(counts[o].sum() for o in owners)
            true[target] = size * np.mean([counts[o] / counts[o].sum() for o in owners], axis=0)
            guesses[target] = guessed.sum(0) / max(guessed.sum(), 1)
            continue
        histograms = np.sum([_histograms(finished, o) for o in owners], axis=0)
        for b, (row, right) in enumerate(zip(guessed, histograms, strict=True)):
            name = f"{target}, mash {b}"
            true[name], guesses[name], whose[name] = right, row / max(row.sum(), 1), target
    counted = {t: v.astype(float) for t, v in true.items()}
    score = scoring.label_shares(guesses, counted, whole_counts=not secret, whose=whose)
    shown = list(true)[:SHOWN]
    return Judgement(
        replace(score, details={**score.details, "histograms": float(len(true))}),
        {t: np.round(true[t], 1) for t in shown},
        {t: np.round(guesses[t] * true[t].sum(), 1) for t in shown},
    )


def noised(guess: Guess, finished: FinishedRun) -> Judgement:
    """Means over rounds against the mash without noise: how much of one round's error is gone.

    Where the reduction is trained, only the labels stay the same, and only these are judged.
    """
    frozen = _frozen(finished)
    errors: list[np.ndarray] = []  # [prefixes, cells]
    for target, owners in guess.targets.items():
        centres = np.mean([_centres(finished, o, frozen) for o in owners], axis=0)
        means = guess.values[target][..., -centres.shape[-1] :]
        errors.append((means - centres).reshape(len(means), -1))
    squares = np.concatenate(errors, axis=1) ** 2
    after = prefixes(int(_rounds(finished)[-1]))[: len(squares)]
    left = np.sqrt(squares.mean(1))
    shares = squares / np.maximum(squares.mean(1, keepdims=True), 1e-300)
    # Student's over cells, of the logarithm of the ratio of mean squares: its linear part, whose mean is zero
    less, more = np.exp(np.divide(intervals.mean(shares[-1] - shares[0]), 2))
    late = [i for i, t in enumerate(after) if t >= 5]
    slope = (
        np.polyfit(np.log([after[i] for i in late]), np.log(left[late]), 1)[0] if len(late) > 1 else np.nan
    )
    details = {f"rmse_after_{t}": float(e) for t, e in zip(after, left, strict=True)}
    score = scoring.Score(
        metric="noise averaged away",
        kind=scoring.ScoreKind.UNBOUNDED,
        value=float(1 - left[-1] / left[0]),
        low=float(1 - more * left[-1] / left[0]),
        high=float(1 - less * left[-1] / left[0]),
        baselines={"the first round alone": 0.0},
        details={
            **details,
            **({} if np.isnan(slope) else {"slope": float(slope)}),
            "cells": float(squares.shape[1]),
        },
    )
    target = next(iter(guess.targets))
    centres = np.mean([_centres(finished, o, frozen) for o in guess.targets[target]], axis=0)
    classes = finished.federation.schema.classes
    mine = guess.values[target][-1][:1, -classes:]
    return Judgement(score, {target: centres[:1, -classes:].round(3)}, {target: mine.round(3)})


def _centres(finished: FinishedRun, owner: str, frozen: bool) -> np.ndarray:
    """``[mashes, width + classes]``: centres without noise; labels alone where training moves them."""
    graph, schema = finished.federation.owners[owner], finished.federation.schema
    rows = one_hot(graph.y, schema.classes)
    if frozen:
        start = finished.algorithm.init(schema, sub_seed(finished.seed, "initialisation"))
        reduced = F.relu(graph.x @ start["reduction.weight"] + start["reduction.bias"])
        rows = torch.cat([reduced, rows], dim=1)
    shares = from_pool.shares_of(drawn(finished, owner, 1), int(graph.train_mask.sum()))
    return np.asarray(shares @ rows[graph.train_mask].double().numpy())


def members(guess: Guess, finished: FinishedRun) -> Judgement:
    """Scores of candidates: of each mash, or of an owner's training nodes. A candidate is its features.

    Batches of kept mashes are those of every round. B4's are judged at one false positive in a hundred, the
    others by the area under the curve, whose interval is DeLong's.
    """
    pool = candidates(finished)
    ids = {row.tobytes(): i for i, row in enumerate(pool)}
    scores: list[np.ndarray] = []
    inside: list[np.ndarray] = []
    for target, owners in guess.targets.items():
        for b, row in enumerate(np.atleast_2d(guess.values[target])):
            held = np.zeros(len(pool), dtype=bool)
            for owner in owners:
                rows = training_rows(finished, owner)
                if guess.about != from_pool.TRAINING_NODES:
                    batch = drawn(finished, owner, 1)[b]
                    rows = rows[batch[batch >= 0]]
                held[[ids[r.tobytes()] for r in rows]] = True
            scores.append(row)
            inside.append(held)
    words = list(np.broadcast_to(pool.sum(1), (len(scores), len(pool))))
    auc, at_one_percent = _auc(scores, inside), _hits(scores, inside, 0.01)
    details = {
        "auc": auc["value"],
        "tpr_at_1_percent": at_one_percent["value"],
        "tpr_at_0.1_percent": _hits(scores, inside, 0.001)["value"],
        "members": float(np.sum(inside)),
        "candidates": float(len(pool)),
        "mashes" if guess.about != from_pool.TRAINING_NODES else "owners": float(len(scores)),
    }
    if guess.about == from_pool.MASH_MEMBERS:
        metric, kind, reached = "tpr at 1 % fpr", scoring.ScoreKind.MEAN, at_one_percent
        trivial = {"chance": 0.01, "words in a row": _hits(words, inside, 0.01)["value"]}
    else:
        metric, kind, reached = "auc", scoring.ScoreKind.RANK, auc
        trivial = {"chance": 0.5, "words in a row": _auc(words, inside)["value"]}
    return Judgement(scoring.Score(metric, kind=kind, **reached, baselines=trivial, details=details))


def identities(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of training nodes that were looked up right in the pool, by their features.

    One system of equations names all nodes of a target, or none: the targets are the terms of the interval.
    """
    pool, batches = candidates(finished), mixing(finished)
    right, ranks = [], []
    for target, owners in guess.targets.items():
        rows = np.concatenate([training_rows(finished, o) for o in owners])
        right.append((pool[guess.values[target]] == rows).all(1))
        matrix = [
            np.concatenate([from_pool.shares_of(*batches[o][t]) for o in owners], 1)
            for t in _rounds(finished)
        ]
        ranks.append(np.linalg.matrix_rank(np.concatenate(matrix), tol=1e-9))
    sizes = [len(hits) for hits in right]
    score = scoring.share_right(
        "accuracy",
        right,
        [np.full(size, number) for number, size in enumerate(sizes)],
        {"a random candidate": 1 / len(pool)},
        {"nodes": float(sum(sizes)), "rank": float(min(ranks)), "unknowns": float(max(sizes))},
        scoring.ScoreKind.MEAN,
    )
    return Judgement(score)


class _Reached(intervals.Bounds):
    value: float


def _hits(scores: list[np.ndarray], inside: list[np.ndarray], rate: float) -> _Reached:
    """Members above what that share of the others stay below, in each mash."""
    by_mash = [
        row[held] > np.quantile(row[~held], 1 - rate, method="higher")
        for row, held in zip(scores, inside, strict=True)
    ]
    hits = np.concatenate(by_mash)
    of = np.repeat(np.arange(len(by_mash)), [len(one) for one in by_mash])
    # the members of a mash are found together, or not
    ends = intervals.bounds(lambda error: intervals.clustered_share(hits, of, error))
    return {"value": float(hits.mean()), **ends}


def _auc(scores: list[np.ndarray], inside: list[np.ndarray]) -> _Reached:
    """The mean over mashes, with DeLong's interval.

    Or with Student's over mashes, where it is wider: all candidates are held against one mash.
    """
    areas = [intervals.delong(row[held], row[~held]) for row, held in zip(scores, inside, strict=True)]
    values = [value for value, _ in areas]
    value, variance = float(np.mean(values)), sum(v for _, v in areas) / len(areas) ** 2
    fewer = min(min(int(held.sum()), int((~held).sum())) for held in inside)
    ends = intervals.bounds(lambda error: intervals.area(value, variance, fewer, values, error))
    return {"value": value, **ends}


JUDGES: Mapping[str, Judge] = {
    BATCH_LABELS: batch_labels,
    NOISED: noised,
    from_pool.MASH_MEMBERS: members,
    from_pool.FILTERED_MEMBERS: members,
    from_pool.TRAINING_NODES: members,
    from_pool.IDENTITIES: identities,
}
MAKERS: Mapping[str, Maker] = {from_pool.POOL: candidates, from_pool.MIXING: mixing}
