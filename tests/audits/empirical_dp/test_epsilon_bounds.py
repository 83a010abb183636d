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

from secure_fedgraph.audits.empirical_dp.epsilon import Lower, gaussian, of_mu, two_worlds
from secure_fedgraph.core.errors import BadInput

DELTA = 1e-5
METHODS = {"Gaussian": gaussian, "two": two_worlds}
THEIRS = json.loads((Path(__file__).parent / "jax_privacy_values.json").read_text())


def mu_of(epsilon: float) -> float:
    return 1 / float(dp.get_sigma_gaussian(epsilon, DELTA))


def worlds(number: int, mu: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal(number) + mu, generator.standard_normal(number)


@pytest.mark.parametrize(
    ("number", "shift", "least"),
    [(1000, 1, (2.0, 0.19)), (5000, 1, (2.5, 0.06)), (1000, 2, (6.0, 1.78)), (1000, 5, (21, 3.4))],
)
def test_medians_of_the_threat_model(number, shift, least):
    """At least those of threats.md 5.1, whose thresholds cost more; never above the truth."""
    mu = shift * mu_of(4)
    runs = [worlds(number // 2, mu, seed) for seed in range(9)]
    for method, wanted in zip((gaussian, two_worlds), least, strict=True):
        assert wanted <= median(method(*run, DELTA).epsilon for run in runs) <= of_mu(mu, DELTA)


@pytest.mark.parametrize("name", METHODS)
def test_the_confidence_is_what_it_says(name):
    """Above the truth at most as often as one minus the confidence, of many independent audits (seeded)."""
    mu, confidence = 1.2, 0.8
    bounds = [METHODS[name](*worlds(200, mu, seed), DELTA, confidence).epsilon for seed in range(200)]
    above = sum(bound > of_mu(mu, DELTA) for bound in bounds)
    assert binom.sf(above - 1, 200, 1 - confidence) > 1e-3
    assert median(bounds) > 0


def test_the_gaussian_bound_needs_its_confidence():
    # the control: at a confidence of nothing the bound is above the truth about as often as below
    bounds = [gaussian(*worlds(200, 1.2, seed), DELTA, 0.01).epsilon for seed in range(100)]
    assert 10 < sum(bound > of_mu(1.2, DELTA) for bound in bounds) < 90


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
        noisy = METHODS[name](*worlds(400, 2.0, seed), DELTA)
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
    assert gaussian(*worlds(10_000, mu, 0), DELTA, 1 - 1e-4).scores_in == 5_000


def test_either_direction_of_the_inequality_counts():
    # few false positives are as telling as few false negatives
    ins, outs = worlds(5000, 3.0, 0)
    right = two_worlds(ins, outs, DELTA, threshold=2.5).epsilon
    left = two_worlds(-outs, -ins, DELTA, threshold=-2.5).epsilon
    assert right == pytest.approx(left, rel=1e-3)
    assert right > 3


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
    with pytest.raises(BadInput, match="above 0"):
        gaussian(np.ones(5), np.zeros(5), 0.0)
    assert two_worlds(np.ones(50), np.zeros(50), 0.0).epsilon > 1
