"""Judges: pure functions of a guess and the truth, with intervals and the trivial baselines beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import rankdata

RESAMPLES = 1000


@dataclass(frozen=True)
class Score:
    """How good a guess is.

    Args:
        metric: its name; 1 is exact.
        value: the score.
        low, high: a 95 % bootstrap interval.
        baselines: what trivial guesses reach, by name.
        details: further figures.
    """

    metric: str
    value: float
    low: float
    high: float
    baselines: Mapping[str, float]
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def baseline(self) -> float:
        """The best of the trivial guesses."""
        return max(self.baselines.values())

    @property
    def leaks(self) -> bool:
        """Whether the guess is beyond the best trivial one."""
        return self.low > self.baseline or (self.value >= 1 - 1e-9 > self.baseline)

    @property
    def verdict(self) -> str:
        """In words: exact, a leak, or nothing beyond the trivial guess."""
        if self.baseline >= 1 - 1e-9:
            return "nothing to learn: a trivial guess is exact"
        if self.value >= 1 - 1e-9:
            return "exact"
        return "leak" if self.leaks else "no better than a trivial guess"


def vocabulary(guesses: Mapping[str, np.ndarray], truths: Mapping[str, np.ndarray]) -> Score:
    """F1 of the guessed words over all owners; a word is guessed where its score is not zero.

    The baselines: every word; as many words as are true, drawn at random.

    Args:
        guesses: owner -> scores ``[words]``.
        truths: owner -> booleans ``[words]``.

    >>> truth = np.array([True, False, True, False])
    >>> vocabulary({"a": np.array([2.0, 0.0, 0.1, 0.0])}, {"a": truth}).value
    1.0
    """
    guess = np.concatenate([guesses[owner] > 0 for owner in truths])
    truth = np.concatenate([truths[owner] for owner in truths])
    scores = np.concatenate([guesses[owner] for owner in truths])
    picks = np.random.default_rng(0).integers(0, truth.size, (RESAMPLES, truth.size))
    low, high = np.quantile(_f1(guess[picks], truth[picks]), [0.025, 0.975])
    share = float(truth.mean())
    return Score(
        metric="f1",
        value=float(_f1(guess, truth)),
        low=float(low),
        high=float(high),
        # a random guess that is right as often as words are true has precision and recall of that share
        baselines={"every word": float(_f1(np.ones_like(truth), truth)), "random words": share},
        details={
            "precision": float((guess & truth).sum() / max(guess.sum(), 1)),
            "recall": float((guess & truth).sum() / max(truth.sum(), 1)),
            # undefined, and left out, where every word is true or none is
            **({} if truth.all() or not truth.any() else {"auc": auc(scores, truth)}),
            "words": float(truth.sum()),
        },
    )


def label_shares(
    guesses: Mapping[str, np.ndarray], truths: Mapping[str, np.ndarray], *, whole_counts: bool = True
) -> Score:
    """The share of labels that a guessed histogram puts in the right class, mean over owners.

    ``1 - L1 / 2`` of the histograms. The baselines: equal classes; the mean of the other owners' true shares,
    which is what somebody without a transcript could know.

    Args:
        guesses: owner -> estimated class shares ``[classes]``.
        truths: owner -> true counts ``[classes]``.
        whole_counts: round the guess to whole labels first, as the truth is; not for a mean of owners.
    """
    right, equal, others, missed, taken = [], [], [], 0.0, 0.0
    for owner, counts in truths.items():
        size = counts.sum()
        guess = np.clip(guesses[owner], 0, None)
        guess = np.rint(guess * size) if whole_counts else guess * size
        right.append(1 - min(np.abs(guess - counts).sum() / size / 2, 1.0))
        equal.append(1 - np.abs(1 / counts.size - counts / size).sum() / 2)
        rest = [c / c.sum() for name, c in truths.items() if name != owner]
        if rest:
            others.append(1 - np.abs(np.mean(rest, axis=0) - counts / size).sum() / 2)
        missed += float(np.abs(guess - counts).sum())
        taken += float(size)
    low, high = _over(right)
    baselines = {"equal classes": float(np.mean(equal))}
    if others:
        baselines["the other owners' mean"] = float(np.mean(others))
    return Score(
        metric="labels placed right",
        value=float(np.mean(right)),
        low=low,
        high=high,
        baselines=baselines,
        details={"l1_labels": missed, "labels": taken},
    )


def auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """The chance that a true item outscores a false one, ties counted half.

    >>> auc(np.array([3.0, 1.0, 2.0]), np.array([True, False, True]))
    1.0
    """

    positives = int(truth.sum())
    negatives = truth.size - positives
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _f1(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
    hits = (guess & truth).sum(-1)
    return 2 * hits / np.maximum(guess.sum(-1) + truth.sum(-1), 1)


def _over(values: list[float]) -> tuple[float, float]:
    draws = np.random.default_rng(0).choice(values, (RESAMPLES, len(values))).mean(1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)
