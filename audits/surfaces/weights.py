"""Updates of weights: judges of vocabularies, label shares, and the one node that a step was taken on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.weights.updates import LABEL_SHARES, SINGLE, VOCABULARY
from secure_fedgraph.audits import scoring, truth
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement

EXACT = 1e-6
"""How far an exact row may be from the node's, in any word."""


def words(guess: Guess, finished: FinishedRun) -> Judgement:
    """Vocabularies. A guess about several owners together is scored against their union.

    The details also have its score about single owners.
    """
    single = truth.vocabulary(finished.federation, finished.algorithm.hops)
    true = {t: np.any([single[o] for o in owners], axis=0) for t, owners in guess.targets.items()}
    score = scoring.vocabulary(guess.values, true)
    together = [t for t, owners in guess.targets.items() if len(owners) > 1]
    if together:
        (target,) = together
        of_each = scoring.vocabulary(dict.fromkeys(guess.targets[target], guess.values[target]), single)
        score = replace(score, details={**score.details, "f1_about_each_owner": of_each.value})
    return Judgement(
        score,
        {t: v.astype(int) for t, v in true.items()},
        {t: (v > 0).astype(int) for t, v in guess.values.items()},
    )


def labels(guess: Guess, finished: FinishedRun) -> Judgement:
    """Label histograms. A guess about several owners together is scored against the mean of their shares."""
    true, whole = truth.mean_shares(truth.label_counts(finished.federation), guess.targets)
    guessed = {t: np.round(np.clip(v, 0, None) * true[t].sum(), 1) for t, v in guess.values.items()}
    return Judgement(scoring.label_shares(guess.values, true, whole_counts=whole), true, guessed)


def single(guess: Guess, finished: FinishedRun) -> Judgement:
    """Rows compared with the nodes of the owners that they are about, exact to ``EXACT`` in every word.

    Of a single owner the second row is the neighbours' mean: right where it is a mean of sampled neighbours
    of the node that the first row is.
    """
    nodes = truth.node_features(finished.federation)
    held_by = {t: np.concatenate([nodes[o] for o in owners]) for t, owners in guess.targets.items()}
    alone = {t: len(owners) == 1 for t, owners in guess.targets.items()}
    rows = {t: v[:1] if alone[t] else v for t, v in guess.values.items()}
    held = {t: _exactly(scoring.match_rows(v, held_by[t]), held_by[t]) for t, v in rows.items()}
    score = scoring.recovered_rows(
        held, {t: len(v) for t, v in held_by.items()}, np.concatenate(list(nodes.values()))
    )
    means = [
        _is_mean(guess.values[t][1], finished, owners[0], int(held[t].nearest[0]))
        for t, owners in guess.targets.items()
        if alone[t] and held[t].exact.any()
    ]
    more = {"neighbour_means": float(len(means)), "neighbour_means_right": float(sum(means))}
    shown = {t: h.distinct()[:2] for t, h in held.items()}
    return Judgement(
        replace(score, details={**score.details, **(more if any(alone.values()) else {})}),
        {t: np.round(held_by[t][h.nearest[shown[t]]], 3) for t, h in held.items()},
        {t: np.round(h.rows[shown[t]], 3) for t, h in held.items()},
    )


def _exactly(held: scoring.MatchedRows, nodes: np.ndarray) -> scoring.MatchedRows:
    if not len(held.rows):
        return held
    return replace(held, exact=np.abs(held.rows - nodes[held.nearest]).max(1) <= EXACT)


def _is_mean(row: np.ndarray, finished: FinishedRun, owner: str, node: int) -> bool:
    """Whether a row is a mean of some of a node's neighbours, with repetition; without neighbours, zero."""
    graph = finished.federation.owners[owner]
    source, target = graph.edge_index.numpy()
    around = graph.x.numpy()[source[target == node]].astype(np.float64)
    if not len(around):
        return bool(np.abs(row).max() <= EXACT)
    shares, _ = nnls(np.vstack([around.T, np.ones(len(around))]), np.append(row, 1.0))
    return bool(np.abs(shares @ around - row).max() <= 10 * EXACT)


JUDGES: Mapping[str, Judge] = {VOCABULARY: words, LABEL_SHARES: labels, SINGLE: single}
