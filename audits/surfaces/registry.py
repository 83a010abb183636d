"""Who scores what: for each thing that attacks guess about, the truth, the score, and both side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.neighgen import FEATURES
from secure_fedgraph.attacks.weights import LABEL_SHARES, VOCABULARY
from secure_fedgraph.audits import scoring, truth
from secure_fedgraph.audits.finished_run import Case
from secure_fedgraph.audits.judgement import Judge, Judgement
from secure_fedgraph.audits.surfaces.embeddings import JUDGES_EMBEDDINGS
from secure_fedgraph.audits.surfaces.mashes import JUDGES_OF_MASHES
from secure_fedgraph.audits.surfaces.oracle import JUDGES_ORACLE
from secure_fedgraph.audits.surfaces.prototypes import JUDGES_OF_PROTOTYPES
from secure_fedgraph.audits.surfaces.released import JUDGES_OF_RELEASED
from secure_fedgraph.audits.surfaces.rounds import JUDGES_OF_ROUNDS
from secure_fedgraph.audits.surfaces.vertical import JUDGES_VERTICAL
from secure_fedgraph.audits.surfaces.weights_single import JUDGES_OF_SINGLE

__all__ = ["JUDGES", "MOST_ROWS", "Judge", "Judgement"]

MOST_ROWS = 4  # kept for pictures


def words(guess: Guess, case: Case) -> Judgement:
    """Vocabularies. A guess about several owners together is scored against their union.

    Beside it stands what that guess is worth about single owners.
    """
    single = truth.vocabulary(case.federation, case.algorithm.hops)
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


def labels(guess: Guess, case: Case) -> Judgement:
    """Label histograms. A guess about several owners together is scored against the mean of their shares."""
    counts = truth.label_counts(case.federation)
    true, whole = {}, True
    for target, owners in guess.targets.items():
        size = sum(counts[o].sum() for o in owners)
        true[target] = size * np.mean([counts[o] / counts[o].sum() for o in owners], axis=0)
        whole = whole and len(owners) == 1
    guessed = {t: np.round(np.clip(v, 0, None) * true[t].sum(), 1) for t, v in guess.values.items()}
    return Judgement(scoring.label_shares(guess.values, true, whole_counts=whole), true, guessed)


def features(guess: Guess, case: Case) -> Judgement:
    """Rows of features, each held against the nearest node of the owners that it is about.

    For pictures the first distinct rows of each target, beside the nodes that they are nearest to.
    """
    nodes = truth.node_features(case.federation)
    held = {t: np.concatenate([nodes[o] for o in owners]) for t, owners in guess.targets.items()}
    public = np.concatenate(list(nodes.values()))
    rows = {t: scoring.hold(values, held[t]) for t, values in guess.values.items()}
    sizes = {t: len(values) for t, values in held.items()}
    true, guessed = {}, {}
    for target, found in rows.items():
        first = found.distinct()[:MOST_ROWS]
        true[target] = np.round(held[target][found.nearest[first]], 3)
        guessed[target] = np.round(found.rows[first], 3)
    return Judgement(scoring.recovered_rows(rows, sizes, public), true, guessed)


JUDGES: dict[str, Judge] = {
    VOCABULARY: words,
    LABEL_SHARES: labels,
    FEATURES: features,
    **JUDGES_OF_RELEASED,
    **JUDGES_OF_ROUNDS,
    **JUDGES_OF_SINGLE,
    **JUDGES_OF_MASHES,
    **JUDGES_OF_PROTOTYPES,
    **JUDGES_VERTICAL,
    **JUDGES_ORACLE,
    **JUDGES_EMBEDDINGS,
}
