"""Judges of what owners' scores give away: the size of their test data, and its classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.scores import COUNTED_SHARES, TEST_SHARES, TEST_SIZES
from secure_fedgraph.audits import scoring
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement


def sizes(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of owners whose number of test nodes is named exactly.

    Trivial: the mean number, which follows from public facts and the split.
    """
    tested = _tested(finished)
    true = {owner: np.array([len(tested[owner])]) for owner in guess.values}
    hits = [int(guess.values[owner][0]) == int(size[0]) for owner, size in true.items()]
    mean = round(float(np.mean([size[0] for size in true.values()])))
    baselines = {"the mean size": float(np.mean([int(size[0]) == mean for size in true.values()]))}
    details = {"owners": float(len(hits))}
    score = scoring.independent("sizes exact", sum(hits), len(hits), baselines, details)
    return Judgement(score, true, {owner: guess.values[owner].astype(int) for owner in true})


def class_shares(guess: Guess, finished: FinishedRun, pooled: bool = False) -> Judgement:
    """The share of test labels that are put into the right class; a class nobody asked about counts as none.

    Trivial: equal classes; the mean of the other owners' shares.

    Args:
        pooled: whether the truth about several owners is the shares of all their test nodes, and not the mean
            of their shares.
    """
    classes, tested = finished.federation.schema.classes, _tested(finished)
    counts = {o: np.bincount(y, minlength=classes).astype(float) for o, y in tested.items() if len(y)}
    true, whole = {}, True
    for target, owners in guess.targets.items():
        mine = [counts[owner] for owner in owners if owner in counts]
        items = np.sum(mine, axis=0)
        true[target] = items if pooled else items.sum() * np.mean([c / c.sum() for c in mine], axis=0)
        whole = whole and len(owners) == 1
    values = {target: np.nan_to_num(one) for target, one in guess.values.items()}
    score = scoring.label_shares(values, true, whole_counts=whole)
    return Judgement(score, true, {t: np.round(v * true[t].sum(), 1) for t, v in values.items()})


def _tested(finished: FinishedRun) -> dict[str, np.ndarray]:
    """Owner -> the labels of its own test nodes."""
    return {o: g.y.numpy()[g.test_mask.numpy()] for o, g in finished.federation.owners.items()}


JUDGES: Mapping[str, Judge] = {
    TEST_SIZES: sizes,
    TEST_SHARES: class_shares,
    COUNTED_SHARES: partial(class_shares, pooled=True),
}
