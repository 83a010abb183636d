"""The judges, with literal numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from secure_fedgraph.audits.scoring import Score, ScoreKind, label_shares, vocabulary
from secure_fedgraph.evaluation import roc_auc

TRUE = np.array([True, True, False, False])


def test_an_exact_vocabulary() -> None:
    score = vocabulary({"a": np.tile([0.3, 2.0, 0.0, 0.0], 10)}, {"a": np.tile(TRUE, 10)})
    assert (score.value, score.high) == (1.0, 1.0)
    assert score.low == pytest.approx(0.025 ** (1 / 40))  # Clopper and Pearson's of forty words
    assert score.details == {"precision": 1.0, "recall": 1.0, "auc": 1.0, "words": 20.0}
    # every word: precision 1/2, recall 1 -> 2/3; random words: the share of true ones
    assert score.baselines == {"every word": pytest.approx(2 / 3), "random words": 0.5}
    assert score.baseline == pytest.approx(2 / 3)
    assert score.leaks
    assert score.verdict == "exact"


def test_a_vocabulary_with_one_hit_one_miss_and_one_false_alarm() -> None:
    score = vocabulary({"a": np.array([1.0, 0.0, 0.5, 0.0])}, {"a": TRUE})
    assert score.value == pytest.approx(0.5)  # 2 * 1 / (2 + 2)
    assert score.details["precision"] == 0.5
    assert score.details["recall"] == 0.5
    # pairs (true, false): 1 > .5, 1 > 0, 0 < .5, 0 = 0 -> 2.5 of 4
    assert score.details["auc"] == pytest.approx(0.625)
    assert not score.leaks
    assert score.verdict == "no better than a trivial guess"


def test_owners_are_scored_together_by_name_not_by_order() -> None:
    other = np.array([False, False, True, True])
    guesses = {"b": other.astype(float), "a": TRUE.astype(float)}
    assert vocabulary(guesses, {"a": TRUE, "b": other}).value == 1.0
    swapped = {"b": TRUE.astype(float), "a": other.astype(float)}
    assert vocabulary(swapped, {"a": TRUE, "b": other}).value == 0.0


@pytest.mark.parametrize(
    ("guess", "truth", "value"),
    [(np.ones(4), TRUE, 2 / 3), (np.ones(4), np.ones(4, dtype=bool), 1.0), (np.zeros(4), TRUE, 0.0)],
    ids=["every word is the baseline", "where every word is true", "no guess at all"],
)
def test_trivial_guesses_are_no_leak(guess: np.ndarray, truth: np.ndarray, value: float) -> None:
    score = vocabulary({"a": guess}, {"a": truth})
    assert score.value == pytest.approx(value)
    assert not score.leaks
    assert value == 0 or score.value == score.baseline


def test_the_interval_holds_the_value_and_narrows_with_more_words() -> None:
    rng = np.random.default_rng(0)
    widths = []
    for size in (50, 5000):
        truth = rng.random(size) < 0.5
        guess = np.where(rng.random(size) < 0.8, truth, ~truth).astype(float)
        score = vocabulary({"a": guess}, {"a": truth})
        assert score.low <= score.value <= score.high
        widths.append(score.high - score.low)
    assert widths[1] < widths[0] / 5


def test_exact_labels() -> None:
    truths = {"a": np.array([6.0, 2.0, 4.0]), "b": np.array([1.0, 3.0, 8.0])}
    near = {owner: counts / 12 + 1e-6 * np.array([1.0, -1.0, 0.5]) for owner, counts in truths.items()}
    score = label_shares(near, truths)
    assert (score.value, score.low, score.high, score.surely_at_least) == (1.0, 1.0, 1.0, 1.0)
    assert score.details == {"l1_labels": 0.0, "labels": 24.0}
    # equal classes: (2 + 2 + 0) / 12 / 2 and (3 + 1 + 4) / 12 / 2; the other's mean: (5 + 1 + 4) / 12 / 2
    assert score.baselines == {
        "equal classes": pytest.approx(1 - (4 + 8) / 48),
        "the other owners' mean": pytest.approx(1 - 10 / 24),
    }
    assert score.verdict == "exact"


def test_whole_labels_of_few_classes_may_be_right_by_chance() -> None:
    truths = {"a": np.array([6.0, 2.0]), "b": np.array([1.0, 3.0])}
    score = label_shares({"a": np.array([0.75, 0.25]), "b": np.array([0.25, 0.75])}, truths)
    assert (score.value, score.high) == (1.0, 1.0)
    assert not score.leaks  # two whole numbers: one guess in four is right, on no better grounds
    assert score.verdict == "exact, of too few to tell from a trivial guess"
    many = {f"{owner}{i}": counts for i in range(3) for owner, counts in truths.items()}
    whole = label_shares({name: counts / counts.sum() for name, counts in many.items()}, many)
    assert whole.low == 1.0  # six: one in 64, which is a leak and accuses nobody
    assert whole.surely_at_least is not None and whole.surely_at_least < whole.baseline


def test_labels_that_rounding_made_right_are_so_many_hits() -> None:
    truths = {"a": np.array([6.0, 2.0]), "b": np.array([1.0, 3.0])}
    score = label_shares({"a": np.array([0.77, 0.23]), "b": np.array([0.25, 0.75])}, truths)
    assert (score.value, score.high) == (1.0, 1.0)
    # twelve labels, each worth (1.96 / 12.7)^2 of one: two owners tell next to nothing of their variance
    assert score.low == pytest.approx(0.025 ** (1 / (12 * (1.959964 / 12.706205) ** 2)))
    assert not score.leaks
    assert score.verdict == "exact, of too few to tell from a trivial guess"


def test_a_class_that_a_clip_leaves_is_no_number_that_was_guessed() -> None:
    truths = {"a": np.array([8.0, 0.0, 0.0]), "b": np.array([0.0, 9.0, 0.0]), "c": np.array([0.0, 0.0, 7.0])}
    score = label_shares({owner: counts / counts.sum() for owner, counts in truths.items()}, truths)
    assert score.value == 1.0 and score.low < 1  # one of three classes each, as noise may have it


@pytest.mark.parametrize(
    ("guess", "whole", "value", "missed"),
    [
        ([0.5, 0.5], True, 0.75, 4.0),  # (4, 4) against (6, 2): L1 4 of 8 labels, half of it misplaced
        ([0.76, 0.24], True, 1.0, 0.0),  # rounded to whole labels
        ([0.76, 0.24], False, 0.99, 0.16),  # as a mean of owners is not
        ([1.0, -3.0], True, 0.75, 4.0),  # never negative
        ([9.0, 9.0], True, 0.0, 66.0 + 70.0),  # far off is zero and not below
    ],
)
def test_labels_by_hand(guess: list[float], whole: bool, value: float, missed: float) -> None:
    score = label_shares({"a": np.array(guess)}, {"a": np.array([6.0, 2.0])}, whole_counts=whole)
    assert score.value == pytest.approx(value)
    assert score.details == {"l1_labels": pytest.approx(missed), "labels": 8.0}
    assert score.baselines == {"equal classes": 0.75}
    assert score.leaks == (value > 0.75 and score.low > 0.75)


def test_auc_by_hand() -> None:
    assert roc_auc(np.array([1.0, 2.0, 3.0]), np.array([False, False, True])) == 1.0
    assert roc_auc(np.array([3.0, 2.0, 1.0]), np.array([False, False, True])) == 0.0
    assert roc_auc(np.array([1.0, 1.0, 1.0]), np.array([True, False, True])) == 0.5
    assert roc_auc(np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, True, False, True])) == 0.875


@pytest.mark.parametrize("truth", [[True, True], [False, False]])
def test_auc_needs_both_kinds(truth: list[bool]) -> None:
    assert math.isnan(roc_auc(np.array([1.0, 2.0]), np.array(truth)))


@pytest.mark.parametrize(
    ("value", "low", "baseline", "leaks", "verdict"),
    [
        (0.8, 0.7, 0.6, True, "leak"),
        (0.8, 0.6, 0.6, False, "no better than a trivial guess"),
        (0.8, 0.5, 0.6, False, "no better than a trivial guess"),
        (0.5, 0.4, 0.6, False, "no better than a trivial guess"),
        (1.0, 0.7, 0.6, True, "exact"),
        (1.0, 0.5, 0.6, False, "exact, of too few to tell from a trivial guess"),
        (1.0, 1.0, 1.0, False, "nothing to learn: a trivial guess is exact"),
    ],
)
def test_what_counts_as_a_leak(value: float, low: float, baseline: float, leaks: bool, verdict: str) -> None:
    score = Score("f1", value, low, 1.0, {"trivial": baseline, "worse": 0.0}, kind=ScoreKind.JOINT)
    assert (score.leaks, score.verdict) == (leaks, verdict)
