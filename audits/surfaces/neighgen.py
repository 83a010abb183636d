"""FedSage+'s exchange of gradients: judges of rows, and of nodes that a crafted generator named."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from secure_fedgraph.attacks.active.oracle import COVERED
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.sparse_rows import FEATURES
from secure_fedgraph.audits import intervals, scoring, truth
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement

MOST_ROWS = 4
"""Rows of a target that are kept for pictures."""
_TRIVIAL = {
    True: ("the mean node, rounded", "random words at their rates"),
    False: ("the mean node", "random values of each column"),
}


def features(guess: Guess, finished: FinishedRun) -> Judgement:
    """Rows of features, each compared with the nearest node of the owners that it is about.

    Pictures show the first distinct rows of each target, beside the nodes that they are nearest to.
    """
    nodes = truth.node_features(finished.federation)
    held = {t: np.concatenate([nodes[o] for o in owners]) for t, owners in guess.targets.items()}
    public = np.concatenate(list(nodes.values()))
    rows = {t: scoring.match_rows(values, held[t]) for t, values in guess.values.items()}
    sizes = {t: len(values) for t, values in held.items()}
    true, guessed = {}, {}
    for target, recovered in rows.items():
        first = recovered.distinct()[:MOST_ROWS]
        true[target] = np.round(held[target][recovered.nearest[first]], 3)
        guessed[target] = np.round(recovered.rows[first], 3)
    return Judgement(scoring.recovered_rows(rows, sizes, public), true, guessed)


def covered(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of the owners' nodes whose features were named exactly; nodes of equal features count alike.

    Trivial, of words: the node of all words' rounded rates, and as many rows as were named, with words drawn
    at their rates. Trivial, of dense features: the mean node, and rows drawn from each column by itself.
    """
    nodes = truth.node_features(finished.federation)
    public = np.concatenate(list(nodes.values()))
    rates, words = public.mean(0), scoring.words_only(public)
    right, of, named, real, mean, drawn, true, guessed = 0, 0, 0, 0, 0, 0, {}, {}
    rng = np.random.default_rng(0)
    for target, owners in guess.targets.items():
        held = np.concatenate([nodes[owner] for owner in owners])
        _, alike = np.unique(held, axis=0, return_inverse=True)
        rows = scoring.match_rows(guess.values[target], held)
        got = _same(alike, rows)
        right, of = right + got, of + len(held)
        named, real = named + len(rows.rows), real + int(rows.exact.sum())
        mean += _same(alike, scoring.match_rows(rates.round()[None] if words else rates[None], held))
        many = min(len(rows.rows), 500)
        made = rng.random((many, len(rates))) < rates if words else scoring.drawn_rows(public, many, rng)
        drawn += _same(alike, scoring.match_rows(made.astype(np.float64), held))
        first = rows.distinct()[:MOST_ROWS]
        true[target] = np.round(held[rows.nearest[first]], 3)
        guessed[target] = np.round(rows.rows[first], 3)
    score = scoring.Score(
        "nodes covered",
        right / of,
        kind=scoring.ScoreKind.UNBOUNDED,
        **intervals.bounds(lambda error: intervals.share(right, of, error)),
        baselines=dict(zip(_TRIVIAL[words], (mean / of, drawn / of), strict=True)),
        details={
            "nodes": float(of),
            "rows_named": float(named),
            "share_that_are_nodes": real / max(named, 1),
        },
    )
    return Judgement(score, true, guessed)


def _same(alike: np.ndarray, rows: scoring.MatchedRows) -> int:
    """How many nodes have the features of an exact row."""
    return int(np.isin(alike.ravel(), alike.ravel()[rows.nearest[rows.exact]]).sum())


JUDGES: Mapping[str, Judge] = {FEATURES: features, COVERED: covered}
