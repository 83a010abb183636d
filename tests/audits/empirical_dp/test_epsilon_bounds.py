"""Lower bounds on epsilon: below the truth as often as they say, and near it where they can be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median

import dp_accounting as dp
import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

from secure_fedgraph.audits.empirical_dp import epsilon as module
from secure_fedgraph.audits.empirical_dp.epsilon import (
    Lower,
    gaussian,
    of_mu,
    one_run,
    one_run_gaussian,
    two_worlds,
)
from secure_fedgraph.core.errors import BadInput

DELTA = 1e-5
METHODS = {"one run": one_run, "one run, Gaussian": one_run_gaussian, "Gaussian": gaussian, "two": two_worlds}
THEIRS = json.loads((Path(__file__).parent / "jax_privacy_values.json").read_text())


def mu_of(epsilon: float) -> float:
    return 1 / float(dp.get_sigma_gaussian(epsilon, DELTA))


def canaries(number: int, mu: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of canaries that independent coins put in, each moved by mu where it is in."""
    generator = np.random.default_rng(seed)
    inside = generator.random(number) < 0.5
    scores = generator.standard_normal(number) + mu * inside
    return scores[inside], scores[~inside]


def worlds(number: int, mu: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal(number) + mu, generator.standard_normal(number)


@pytest.mark.parametrize(
    ("number", "claim", "shift", "expected"),
    [
        # threats.md 5.1: medians over nine repetitions. That table chose its thresholds in another way (it
        # corrects for all of them), which costs its two-world bounds more: those are floors here.
        (
            1000,
            4,
            1,
            {"one run": (1.49, 0.3), "one run, Gaussian": (2.10, 0.4), "Gaussian": 2.0, "two": 0.19},
        ),
        (
            1000,
            8,
            1,
            {"one run": (2.36, 0.7), "one run, Gaussian": (3.46, 1.1), "Gaussian": 5.1, "two": 1.07},
        ),
        (
            5000,
            4,
            1,
            {"one run": (1.87, 0.2), "one run, Gaussian": (2.39, 0.3), "Gaussian": 2.5, "two": 0.06},
        ),
        # noise that is half of what was claimed, and a fifth
        (
            1000,
            4,
            2,
            {"one run": (2.94, 0.4), "one run, Gaussian": (4.37, 0.7), "Gaussian": 6.0, "two": 1.78},
        ),
        (1000, 4, 5, {"one run": (4.76, 0.4), "one run, Gaussian": (8.24, 0.7), "Gaussian": 21, "two": 3.4}),
    ],
)
def test_medians_of_the_threat_model(number, claim, shift, expected):
    runs = [canaries(number, shift * mu_of(claim), seed) for seed in range(9)]
    for name, method in METHODS.items():
        found = median(method(*run, DELTA).epsilon for run in runs)
        wanted = expected[name]
        if isinstance(wanted, tuple):
            assert found == pytest.approx(wanted[0], abs=wanted[1]), name
        else:
            assert found >= wanted, name
        assert found <= of_mu(shift * mu_of(claim), DELTA), name


def test_half_the_noise_is_caught_from_one_run():
    caught = [one_run_gaussian(*canaries(1000, 2 * mu_of(4), seed), DELTA).refutes(4) for seed in range(9)]
    assert sum(caught) >= 8


@pytest.mark.parametrize("name", METHODS)
def test_the_confidence_is_what_it_says(name):
    """Above the truth at most as often as one minus the confidence, of many independent audits (seeded)."""
    mu, confidence = 1.2, 0.8
    draw, size, repeats = (canaries, 300, 60) if name.startswith("one run") else (worlds, 200, 200)
    bounds = [METHODS[name](*draw(size, mu, seed), DELTA, confidence).epsilon for seed in range(repeats)]
    above = sum(bound > of_mu(mu, DELTA) for bound in bounds)
    assert binom.sf(above - 1, repeats, 1 - confidence) > 1e-3
    assert median(bounds) > 0


def test_the_gaussian_bound_needs_its_confidence():
    # the control: at a confidence of nothing the bound is above the truth about as often as below
    bounds = [gaussian(*worlds(200, 1.2, seed), DELTA, 0.01).epsilon for seed in range(100)]
    assert 10 < sum(bound > of_mu(1.2, DELTA) for bound in bounds) < 90


@pytest.mark.parametrize("row", THEIRS["counts"], ids=lambda row: str(row["given"]))
def test_one_run_as_another_implementation_has_it(row):
    total, guesses, right, alpha, delta = row["given"]
    found = module._first_kept(lambda e: module._by_chance(total, guesses, right, e, delta) <= alpha)
    assert found == pytest.approx(row["one_run"], abs=2e-4)
    mu = module._first_kept(lambda mu: module._too_many_right(total, guesses, right, alpha, mu))
    assert of_mu(mu, delta) == pytest.approx(row["one_run_gaussian"], abs=2e-3)


@pytest.mark.parametrize("row", THEIRS["worlds"], ids=lambda row: str(row["given"]))
def test_two_worlds_as_another_implementation_has_it(row):
    scores, mu, threshold, significance, delta = row["given"]
    quantiles = ndtri((np.arange(scores) + 0.5) / scores)
    found = two_worlds(quantiles + mu, quantiles, delta, 1 - significance, threshold=threshold)
    assert found.epsilon == pytest.approx(row["two_worlds"], abs=1e-6)


@pytest.mark.parametrize(("trials", "ceiling"), [(100, 3.28), (1000, 5.60), (10_000, 7.90), (100_000, 10.21)])
def test_the_ceiling_of_two_worlds(trials, ceiling):
    # threats.md 5.1: no errors at 95 %
    found = two_worlds(np.ones(trials), np.zeros(trials), DELTA, threshold=0.5)
    assert found.epsilon == found.ceiling == pytest.approx(ceiling, abs=0.006)


@pytest.mark.parametrize("name", METHODS)
def test_without_noise_the_ceiling_is_reached_and_never_passed(name):
    found = METHODS[name](np.ones(400), np.zeros(400), DELTA)
    assert found.epsilon == pytest.approx(found.ceiling)
    assert 0 < found.ceiling < 60
    assert found.refutes(3.9)
    for seed in range(5):
        noisy = METHODS[name](*canaries(800, 2.0, seed), DELTA)
        assert noisy.epsilon <= noisy.ceiling


@pytest.mark.parametrize("name", METHODS)
def test_scores_that_tell_nothing(name):
    assert METHODS[name](np.zeros(500), np.zeros(500), DELTA).epsilon == 0.0
    ordered = METHODS[name](-np.arange(500.0), np.arange(500.0), DELTA)  # the wrong way round
    assert ordered.epsilon < 0.2


def test_tight_with_ten_thousand_trials_and_a_threshold_in_the_middle():
    mu = mu_of(4)
    found = gaussian(*worlds(10_000, mu, 0), DELTA, 1 - 1e-4, threshold=mu / 2)
    assert 0.8 * 4 < found.epsilon <= 4
    assert found.scores_in == found.scores_out == 10_000
    assert found.details["mu"] <= mu
    assert gaussian(*worlds(10_000, mu, 0), DELTA, 1 - 1e-4).scores_in == 5_000


def test_either_direction_of_the_inequality_counts():
    # few false positives are as telling as few false negatives
    ins, outs = worlds(5000, 3.0, 0)
    right = two_worlds(ins, outs, DELTA, threshold=2.5).epsilon
    left = two_worlds(-outs, -ins, DELTA, threshold=-2.5).epsilon
    assert right == pytest.approx(left, rel=1e-3)
    assert right > 3


def test_equal_scores_are_no_right_guesses():
    # in and out tie everywhere; an order of the input that told them apart would be a leak of the audit's own
    assert module._right(np.zeros(50), np.zeros(50), 25) == 0
    assert module._right(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0]), 2) == 3


def test_the_epsilon_of_mu():
    assert of_mu(0.0, DELTA) == 0.0
    assert of_mu(mu_of(4), DELTA) == pytest.approx(4, abs=1e-4)
    assert math.isfinite(of_mu(9.0, DELTA))


def test_refuting():
    assert Lower(4.1, 9.0, "m", DELTA, 0.95, 1, 1).refutes(4.0)
    assert not Lower(4.0, 9.0, "m", DELTA, 0.95, 1, 1).refutes(4.0)
    assert not Lower(4.0, 9.0, "m", DELTA, 0.95, 1, 1).refutes(math.inf)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("ins", "outs", "delta", "confidence", "said"),
    [
        ([], [1.0], DELTA, 0.95, "scores_in is empty"),
        ([1.0], [math.nan], DELTA, 0.95, "scores_out holds NaN"),
        ([1.0], [1.0], 1.0, 0.95, "delta 1.0"),
        ([1.0], [1.0], -0.1, 0.95, "delta -0.1"),
        ([1.0], [1.0], DELTA, 1.0, "confidence 1.0"),
    ],
)
def test_scores_that_are_none(name, ins, outs, delta, confidence, said):
    with pytest.raises(BadInput, match=said):
        METHODS[name](np.array(ins), np.array(outs), delta, confidence)


def test_a_gaussian_bound_has_no_delta_of_zero():
    for method in (gaussian, one_run_gaussian):
        with pytest.raises(BadInput, match="above 0"):
            method(np.ones(5), np.zeros(5), 0.0)
    assert two_worlds(np.ones(50), np.zeros(50), 0.0).epsilon > 1
