"""Epsilon by the accountant that is right for it: known values, bounds, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, ndtr
from scipy.stats import binom

from secure_fedgraph.core.accounting import pld as losses
from secure_fedgraph.core.accounting.epsilon import counted, epsilon, renyi
from secure_fedgraph.core.accounting.events import (
    ROUNDED,
    DiscreteRelease,
    Event,
    GaussianRelease,
    OccurringGaussian,
    PureRelease,
    SampledGaussian,
    VanishingGaussian,
    event,
)
from secure_fedgraph.core.accounting.rdp import ORDERS, concentrated, curve_of, tau
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.privacy.accountants import budget_figures, node_budget
from secure_fedgraph.privacy.noise_needed import noise_for

DELTA = 1e-5
EVENTS = (
    GaussianRelease(1.5),
    DiscreteRelease(2.0, 3, sigma=40.0, width=1000, total_variation=1e-15),
    SampledGaussian(1.0, 0.01, 100, "replace"),
    OccurringGaussian(20.0, 0.01, 100, 43),
    VanishingGaussian(20.0, 0.01, 100, 43, vanishing=True),
    PureRelease(0.5),
)


def by_losses(one: Event) -> float:
    found = epsilon([one], DELTA)
    assert found.accountant == "pld"
    return found.epsilon


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "known"),
    [
        (1.0, 0.01, 1000, {"pld": 1.829, "rdp": 2.101, "prv": 1.838}),
        (0.6, 0.01, 1000, {"pld": 7.434, "rdp": 8.666, "prv": 7.444}),
        (2.0, 0.1, 200, {"pld": 3.360, "rdp": 3.680, "prv": 3.370}),
    ],
)
def test_the_table_of_accountants(
    multiplier: float, rate: float, steps: int, known: dict[str, float]
) -> None:
    """Values that other people's accountants gave (threats 5.3)."""
    found = budget_figures(multiplier, rate, steps, DELTA, "add-remove")
    assert found == pytest.approx(known, abs=0.02)
    assert abs(found["pld"] - found["prv"]) <= 0.02
    assert found["pld"] <= found["rdp"]


def test_gaussians_compose_exactly() -> None:
    one = epsilon({GaussianRelease(5.0): 200}, DELTA)
    assert one.accountant == "exact-gaussian"
    assert one.epsilon == pytest.approx(dp.get_epsilon_gaussian(5 / math.sqrt(200), DELTA), rel=1e-12)
    assert epsilon([GaussianRelease(1.0), GaussianRelease(2.0)], DELTA).epsilon == pytest.approx(
        dp.get_epsilon_gaussian(1 / math.hypot(1, 0.5), DELTA)
    )


def test_sampling_everything_is_the_exact_curve() -> None:
    """A rate of 1, by the losses of the sampled mechanism itself and by the event."""
    exact = dp.get_epsilon_gaussian(5 / math.sqrt(200), DELTA)
    step = losses.step_of(SampledGaussian(5.0, 1.0, 1, "zero-out"), 1e-3)
    assert step.self_compose(200).get_epsilon_for_delta(DELTA) == pytest.approx(exact, abs=1e-2)
    assert epsilon([SampledGaussian(5.0, 1.0, 200, "zero-out")], DELTA).epsilon == pytest.approx(exact)
    nearly = by_losses(SampledGaussian(5.0, 0.999999, 200, "add-remove"))
    assert nearly == pytest.approx(exact, abs=1e-2)


@pytest.mark.parametrize("relation", ["add-remove", "zero-out", "replace"])
def test_less_sampling_costs_less(relation: str) -> None:
    found = [by_losses(SampledGaussian(1.0, 0.08 / 2**k, 300, relation)) for k in range(3)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1.5 * found[-1]


def test_relations() -> None:
    """Zero-out is a removal; a replacement costs more, and at most what two removals do."""
    add, zero, swap = (
        by_losses(SampledGaussian(1.0, 0.01, 1000, r)) for r in ("add-remove", "zero-out", "replace")
    )
    assert add == zero
    assert swap == pytest.approx(2.843, abs=0.01)  # dp-accounting's own, threats 5.3


@pytest.mark.parametrize(
    ("noise", "rate", "epsilon"), [(69.1, 0.032, 5.74), (15.4, 0.0032, 2.30), (20.1, 0.00512, 2.88)]
)
def test_node_level_figures(noise: float, rate: float, epsilon: float) -> None:
    """Threats 6.1, within 2 %."""
    found = node_budget(noise, rate, 1000, 43, DELTA)
    assert found["pld"] == pytest.approx(epsilon, rel=0.02)
    assert found["pld"] <= found["rdp"]


def test_one_occurrence_is_a_replaced_record() -> None:
    """Own losses against dp-accounting's, and the vanishing pair against its removal and its mixtures."""
    swapped = by_losses(SampledGaussian(1.0, 0.01, 1000, "replace"))
    assert by_losses(OccurringGaussian(1.0, 0.01, 1000, 1)) == pytest.approx(swapped, abs=1e-3)
    removed = by_losses(SampledGaussian(1.0, 0.01, 1000, "zero-out"))
    assert by_losses(VanishingGaussian(1.0, 0.01, 1000, 1, vanishing=True)) == pytest.approx(
        removed, abs=1e-3
    )
    masses = [math.comb(4, j) * 0.05**j * 0.95 ** (4 - j) for j in range(5)]
    theirs = pld.from_mixture_gaussian_mechanism(
        4.0, list(range(5)), masses, value_discretization_interval=1e-3
    )
    ours = losses.vanishing(4, 0.05, 4.0, 1e-3)
    for at in (0.0, 0.1, 0.5, 1.0):
        assert ours.get_delta_for_epsilon(at) == pytest.approx(theirs.get_delta_for_epsilon(at), rel=1e-3)


def test_no_arrangement_of_gradients_is_worse_than_the_mirrored_pair() -> None:
    """The proof's claim by search: K = 2 gradients in the plane, one step, hockey-sticks on a fine grid."""
    rng = np.random.default_rng(0)
    rate, noise, count = 0.3, 1.5, 2
    side = np.linspace(-9, 9, 361)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    cell = (side[1] - side[0]) ** 2

    def mixture(gradients: np.ndarray) -> np.ndarray:
        density = np.zeros(len(points))
        for chosen in itertools.product((0, 1), repeat=count):
            mass = rate ** sum(chosen) * (1 - rate) ** (count - sum(chosen))
            away = points - np.array(chosen) @ gradients / noise
            density += mass * np.exp(-(away**2).sum(axis=1) / 2) / (2 * math.pi)
        return density

    worst = losses.mirrored(count, rate, noise, 1e-3)
    tightest = 0.0
    for trial in range(60):
        angles = rng.uniform(0, 2 * math.pi, (2, count))
        lengths = rng.uniform(0, 1, (2, count)) if trial % 2 else np.ones((2, count))
        if trial == 0:
            angles = np.array([[0.0, 0.0], [math.pi, math.pi]])
        one, other = (
            mixture(length[:, None] * np.stack([np.cos(a), np.sin(a)], axis=1))
            for a, length in zip(angles, lengths, strict=True)
        )
        for at in (-0.5, 0.0, 0.4, 1.0, 2.0):
            found = float(np.maximum(one - math.exp(at) * other, 0).sum() * cell)
            bound = max(worst.get_delta_for_epsilon(at), 0.0)
            assert found <= bound + 1e-4  # what sums over the grid may be off
            tightest = max(tightest, found / bound)
    assert tightest > 0.999  # antipodal gradients reach it


def test_the_mirrored_curve_is_the_half_line_s() -> None:
    """Hockey-sticks from first principles, at points between those of the grid."""
    rate, noise = 0.2, 2.0
    step = losses.mirrored(3, rate, noise, 1e-3)
    masses = np.array([math.comb(3, j) * rate**j * (1 - rate) ** (3 - j) for j in range(4)])
    means = np.arange(4) / noise
    starts = np.linspace(-8, 8, 160_001)[:, None]
    first, second = ndtr(means - starts) @ masses, ndtr(-means - starts) @ masses
    for at in (0.0005, 0.2505, 0.9995, 2.0):
        best = float((first - math.exp(at) * second).max())
        assert best <= step.get_delta_for_epsilon(at) * (1 + 1e-9)
        assert step.get_delta_for_epsilon(at) == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("one", EVENTS, ids=lambda one: one.kind)
def test_losses_never_exceed_renyi(one: Event) -> None:
    for delta in (1e-3, 1e-5, 1e-8):
        assert epsilon([one], delta).epsilon <= renyi(counted([one]), delta) * (1 + 1e-9)


def test_renyi_of_sampled_pairs_is_the_integral() -> None:
    """One order of each pair by summing its density ratio, against the curve that the filter adds up."""
    x = np.linspace(-25, 25, 200_001)
    rate, noise, a = 0.1, 2.0, 3.0
    masses = [math.comb(2, j) * rate**j * (1 - rate) ** (2 - j) for j in range(3)]

    def density(sign: float) -> np.ndarray:
        parts = (m * np.exp(-((x - sign * j / noise) ** 2) / 2) for j, m in enumerate(masses))
        return np.asarray(sum(parts) / math.sqrt(2 * math.pi))

    k = int(np.abs(ORDERS - a).argmin())
    for one, other in (
        (OccurringGaussian(noise, rate, 1, 2), -1.0),
        (VanishingGaussian(noise, rate, 1, 2, True), 0.0),
    ):
        p, q = density(1.0), density(other)
        ways = [np.log((u**a * v ** (1 - a)).sum() * (x[1] - x[0])) / (a - 1) for u, v in ((p, q), (q, p))]
        assert curve_of(one)[k] == pytest.approx(max(ways), rel=1e-5)
        assert curve_of(one)[k] >= max(ways)


def test_discrete_noise_costs_no_less_than_continuous() -> None:
    exact = epsilon([GaussianRelease(2.0)], DELTA).epsilon
    for one in (
        DiscreteRelease(2.0, 1, sigma=2.0, width=1),
        DiscreteRelease(2.0, 10, sigma=2.0, width=10**6),
        DiscreteRelease(2.0, 10, sigma=2.0, width=10**6, total_variation=1e-9),
        DiscreteRelease(2.0, 10, sigma=512.0, width=10**6),
    ):
        assert exact <= epsilon([one], DELTA).epsilon <= 1.12 * exact
    assert epsilon([one], DELTA).accountant == "exact-gaussian"
    ideal = pld.from_discrete_gaussian_mechanism(2.0, 1).get_epsilon_for_delta(DELTA)
    assert epsilon([DiscreteRelease(2.0, sigma=2.0, width=1)], DELTA).epsilon >= ideal > exact


@pytest.mark.parametrize(("sigma", "shares"), [(3.0, 1), (2.0, 4), (9.0, 3)])
def test_discrete_noise_is_continuous_noise_that_was_rounded(sigma: float, shares: int) -> None:
    """Summed by convolution, and integrated over what is rounded: the same odds on every whole number."""
    one = DiscreteRelease(sigma * math.sqrt(shares), shares, sigma=sigma, width=1)
    parts = one.continuous()
    assert parts is not None
    deviation, apart = parts[0].noise_multiplier, parts[1]  # the sensitivity is a step
    reach = int(12 * sigma * math.sqrt(shares))
    whole = np.arange(-reach, reach + 1)
    share = np.exp(-(whole**2) / (2 * sigma**2))
    summed = share = share / share.sum()
    for _ in range(shares - 1):
        summed = np.convolve(summed, share, mode="same")
    y = np.arange(-reach, reach, 1 / 64)
    odds = np.exp(-((whole[:, None] - y) ** 2) / (2 * ROUNDED**2))
    odds /= odds.sum(axis=0)  # of the whole number that each y is rounded to
    rounded = odds @ (np.exp(-(y**2) / (2 * deviation**2)) / (deviation * math.sqrt(2 * math.pi)) / 64)
    middle = slice(reach - reach // 2, reach + reach // 2)
    assert apart < 1e-9
    assert np.log(summed[middle] / rounded[middle]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("step", [1, 4, 9])
def test_rounded_continuous_noise_bounds_the_loss_of_discrete_noise(step: int) -> None:
    """The exact loss of discrete noise on one whole number, beside what is accounted."""
    sigma = 6.0
    ideal = pld.from_discrete_gaussian_mechanism(sigma, step).get_epsilon_for_delta(DELTA)
    assert epsilon([DiscreteRelease(sigma / step, sigma=sigma, width=1)], DELTA).epsilon >= ideal


def test_noise_too_narrow_to_round_is_accounted_as_discrete() -> None:
    assert DiscreteRelease(2.0, 1, sigma=2.0, width=1).continuous() is None
    assert DiscreteRelease(2.0, 2, sigma=2.0, width=1).continuous() is not None


def test_tau() -> None:
    """Threats 6.7: 7e-14 is tau sqrt(d) at ten shares of sigma 2 and a million coordinates."""
    assert tau(10, 2.0) * 1000 == pytest.approx(7e-14, rel=0.05)
    assert tau(1, 2.0) == 0
    assert tau(100_000, 2.0) >= tau(10_000, 2.0) > tau(10, 2.0)
    narrow, wide = (DiscreteRelease(1.0, 10**9, sigma=2.0, width=w) for w in (1, 10**9))
    assert epsilon([wide], DELTA).epsilon >= epsilon([narrow], DELTA).epsilon


def test_the_sampler_s_distance_is_taken_off_delta() -> None:
    one = DiscreteRelease(1.0, sigma=256.0, width=10, total_variation=1e-9)
    found = epsilon([one], DELTA).epsilon
    ideal = replace(one, total_variation=0.0)
    left = DELTA - (1 + math.exp(found)) * 1e-9
    assert epsilon([ideal], DELTA).epsilon < epsilon([ideal], left).epsilon <= found * (1 + 1e-9)
    assert found == pytest.approx(epsilon([ideal], left).epsilon, rel=1e-4)
    assert epsilon({one: 10**4}, DELTA).epsilon == math.inf  # the distances add up to delta itself


def test_nothing_and_no_noise() -> None:
    assert epsilon([], DELTA) == epsilon({GaussianRelease(0.0): 0}, DELTA)
    assert epsilon([], DELTA).epsilon == 0
    for bare in (
        GaussianRelease(0.0),
        GaussianRelease(1e-200),
        DiscreteRelease(0.0, sigma=5.0, width=1),
        SampledGaussian(0.0, 0.1, 1, "zero-out"),
        OccurringGaussian(0.0, 0.1, 1, 3),
    ):
        assert epsilon([GaussianRelease(1.0), bare], DELTA).epsilon == math.inf


def test_little_noise_is_cheap_to_refuse() -> None:
    """No gigabytes for figures that nobody can use; still an upper bound."""
    for one in (
        SampledGaussian(0.01, 0.001, 1000, "replace"),
        OccurringGaussian(0.01, 0.5, 10**9, 43),
        OccurringGaussian(2000.0, 0.5, 1000, 10**6),
        VanishingGaussian(1e9, 0.5, 1000, 10**6, True),
        GaussianRelease(1e-7),
        PureRelease(1e6),
    ):
        assert epsilon([one], DELTA).epsilon >= 0


def test_pure_epsilon_composes() -> None:
    assert epsilon([PureRelease(1.0)], DELTA).epsilon == pytest.approx(1.0, abs=1e-4)
    many = epsilon({PureRelease(0.1): 1000}, DELTA)
    assert many.accountant == "pld"
    p, n = 1 / (1 + math.exp(-0.1)), 1000  # the chance of the likelier answer, and of k of them
    chances, lost = binom(n, p).pmf(np.arange(n + 1)), 0.1 * (2 * np.arange(n + 1) - n)
    left = (chances * -np.expm1(np.minimum(many.epsilon - lost, 0))).sum()
    assert left <= DELTA < (chances * -np.expm1(np.minimum(many.epsilon * 0.99 - lost, 0))).sum()
    both = epsilon([PureRelease(1.0), SampledGaussian(1.0, 0.01, 1000, "zero-out")], DELTA).epsilon
    assert 1.829 < both < 2.84


def test_a_tiny_delta_falls_back_to_renyi() -> None:
    """Doubles cannot carry 1e-13 through a thousand convolutions."""
    found = epsilon([SampledGaussian(1.0, 0.01, 1000, "zero-out")], 1e-13)
    assert found.accountant == "rdp" and found.epsilon > 4


def test_composition_is_of_kinds() -> None:
    """Steps add up whichever way they are written, and every part costs."""
    one = SampledGaussian(1.0, 0.01, 500, "zero-out")
    whole = epsilon([replace(one, steps=1000)], DELTA)
    assert epsilon([one, one], DELTA) == epsilon({one: 2}, DELTA) == whole
    more = epsilon([one, one, GaussianRelease(5.0)], DELTA)
    assert more.accountant == "pld"
    assert whole.epsilon < more.epsilon < whole.epsilon + epsilon([GaussianRelease(5.0)], DELTA).epsilon
    mixed = epsilon([one, one, DiscreteRelease(5.0, sigma=9.0, width=3)], DELTA)
    assert mixed.accountant == "pld" and mixed.epsilon > more.epsilon


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.3, 50), min_size=1, max_size=6),
    st.floats(1e-9, 0.3),
)
def test_renyi_bounds_the_exact_curve(multipliers: list[float], delta: float) -> None:
    events = [GaussianRelease(m) for m in multipliers]
    assert renyi(counted(events), delta) >= epsilon(events, delta).epsilon * (1 - 1e-9)


def test_noise_for_a_budget() -> None:
    for make in (
        lambda z: [GaussianRelease(z)] * 10,
        lambda z: [DiscreteRelease(z, 5, sigma=100.0, width=10**6, total_variation=1e-14)] * 10,
        lambda z: [SampledGaussian(z, 0.01, 1000, "zero-out"), PureRelease(1.0)],
    ):
        noise = noise_for(4.0, DELTA, make)
        assert epsilon(make(noise), DELTA).epsilon <= 4.0 < epsilon(make(noise * 0.998), DELTA).epsilon
    with pytest.raises(BadInput, match=r"costs 2\.0"):
        noise_for(1.5, DELTA, lambda z: [GaussianRelease(z), PureRelease(2.0)])
    with pytest.raises(BadInput, match="positive"):
        noise_for(0.0, DELTA, lambda z: [GaussianRelease(z)])


def test_a_plan_may_refuse_too_little_noise() -> None:
    """As a fixed point does whose sigma would be less than two steps."""
    found = noise_for(8.0, DELTA, lambda z: [DiscreteRelease(z, sigma=z / 5, width=1)])
    assert found == pytest.approx(10.0, rel=2e-3)


@pytest.mark.parametrize("delta", [0, 1, 1.5, -1e-5, math.nan, math.inf, "1e-5", None])
def test_a_delta_that_is_none(delta: object) -> None:
    with pytest.raises(BadInput, match="delta"):
        epsilon([GaussianRelease(1.0)], delta)  # type: ignore[arg-type]


def test_an_accountant_that_under_reports_is_refused() -> None:
    for name in ("gdp", "GaussianAccountant", "gaussian"):
        with pytest.raises(Refused, match="under-reports"):
            budget_figures(1.0, 0.01, 10, DELTA, "zero-out", [name])
    with pytest.raises(BadInput, match="unknown accountant"):
        budget_figures(1.0, 0.01, 10, DELTA, "zero-out", ["prw"])


def test_mixtures_only_where_terms_vanish() -> None:
    for said in (False, 1, "yes"):
        with pytest.raises(BadInput, match="vanish"):
            VanishingGaussian(1.0, 0.1, 3, 43, said)  # type: ignore[arg-type]


@pytest.mark.parametrize("one", EVENTS, ids=lambda one: one.kind)
def test_events_survive_their_json(one: Event) -> None:
    again = event(json.loads(json.dumps(one.to_json())))
    assert again == one and hash(again) == hash(one) and type(again) is type(one)


HOSTILE = [
    {"kind": "gaussian"},
    {"kind": "gaussian", "multiplier": "1"},
    {"kind": "gaussian", "multiplier": True},
    {"kind": "gaussian", "multiplier": None},
    {"kind": "gaussian", "multiplier": math.nan},
    {"kind": "gaussian", "multiplier": math.inf},
    {"kind": "gaussian", "multiplier": -1.0},
    {"kind": "gaussian", "multiplier": 10**400},
    {"kind": "gaussian", "multiplier": 1.0, "more": 2},
    {"kind": "Gaussian", "multiplier": 1.0},
    {"kind": ["gaussian"], "multiplier": 1.0},
    {"multiplier": 1.0},
    {"kind": "sampled gaussian", "multiplier": 1.0, "rate": 0.0, "steps": 3, "relation": "replace"},
    {"kind": "sampled gaussian", "multiplier": 1.0, "rate": 1.1, "steps": 3, "relation": "replace"},
    {"kind": "sampled gaussian", "multiplier": 1.0, "rate": 0.1, "steps": 3.0, "relation": "replace"},
    {"kind": "sampled gaussian", "multiplier": 1.0, "rate": 0.1, "steps": 10**30, "relation": "replace"},
    {"kind": "sampled gaussian", "multiplier": 1.0, "rate": 0.1, "steps": 3, "relation": "swap"},
    {"kind": "vanishing gaussian", "noise": 1.0, "rate": 0.1, "steps": 3, "occurrences": 2, "vanishing": 1},
    {"kind": "occurring gaussian", "noise": 1.0, "rate": 0.1, "steps": 3, "occurrences": 10**9},
    {"kind": "discrete", "multiplier": 1.0, "shares": 1, "sigma": 1.9, "width": 1, "total_variation": 0.0},
    {"kind": "discrete", "multiplier": 1.0, "shares": 0, "sigma": 2.0, "width": 1, "total_variation": 0.0},
    {"kind": "discrete", "multiplier": 1.0, "shares": 1, "sigma": 2.0, "width": 1, "total_variation": 2.0},
    {"kind": "discrete", "multiplier": 1.0, "shares": 1, "sigma": 2.0, "width": 1},
    {"kind": "pure", "epsilon": 0.0},
    {"kind": "pure", "epsilon": -1},
    [],
    "gaussian",
    None,
    {},
]


@pytest.mark.parametrize("json_value", HOSTILE, ids=repr)
def test_hostile_json_is_refused(json_value: object) -> None:
    with pytest.raises(ValueError, match=r"event|kind|relation|sigma|occurr"):
        event(json_value)


@pytest.mark.parametrize("sigma", [0.5, 0.7, 2.0, 2.5])
@pytest.mark.parametrize("shares", [1, 2, 5])
def test_the_divergence_of_summed_discrete_gaussians(sigma: float, shares: int) -> None:
    """By summing the sum's own probabilities: never above the bound, and near it where tau is small.

    Narrow noise is no event, but the formula must hold for it: there tau is not nothing.
    """
    k = np.arange(-200, 201)
    one = np.exp(-(k**2) / (2 * sigma**2))
    law = np.ones(1)
    for _ in range(shares):
        law = np.convolve(law, one / one.sum())
    shift = 1
    p, q = law[:-shift], law[shift:]
    common = (p > 1e-200) & (q > 1e-200)
    wide = DiscreteRelease(math.sqrt(shares) * sigma / shift, shares, sigma=2.0, width=1)
    object.__setattr__(wide, "sigma", sigma)
    for a in (1.1, 2.0, 4.0, 8.0):
        ratio = a * np.log(p[common]) + (1 - a) * np.log(q[common])
        found = float(logsumexp(ratio)) / (a - 1)
        assert found <= concentrated(wide) * a * (1 + 1e-9)
        assert sigma < 2 or found >= 0.999 * concentrated(wide) * a
    if sigma == 0.5 and shares > 1:  # the control: as if the sum were one Gaussian, less than is spent
        assert found > 8 / 2 / wide.noise_multiplier**2 * 1.001
