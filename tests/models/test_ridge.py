"""Ridge from noisy moments: the closed form, and what noise does to a spectrum."""

from __future__ import annotations

import math

import pytest
import torch

from secure_fedgraph.models import ridge


def noise(width: int, deviation: float, seed: int) -> torch.Tensor:
    """Symmetric: standard deviation ``deviation`` off the diagonal, sqrt(2) times that on it."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(width, width, generator=draw, dtype=torch.float64) * deviation / math.sqrt(2)
    return values + values.T


def test_without_noise_it_is_scikit_learns_ridge() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(200, 10, generator=draw, dtype=torch.float64)
    t = ridge.targets(torch.randint(0, 3, (200,), generator=draw), 3, 0.5).double()
    second, classes = z.T @ z, z.T @ t
    found = ridge.weights(second, classes, 0.5)
    # whatever ridge it took, it is one number: that of the closed form
    values, vectors = torch.linalg.eigh(second)
    (amount,) = ridge._ridge(values, vectors.T @ classes, 0.5, 0.0).unique()
    theirs = linear.Ridge(alpha=float(amount), fit_intercept=False).fit(z.numpy(), t.numpy())
    assert torch.allclose(found, torch.from_numpy(theirs.coef_.T), atol=1e-8)


def test_noise_is_taken_off_a_spectrum() -> None:
    width, spikes = 200, (400.0, 150.0)
    vectors = torch.linalg.qr(torch.randn(width, 2, generator=torch.Generator().manual_seed(1)).double())[0]
    clean = vectors @ torch.diag(torch.tensor(spikes).double()) @ vectors.T
    values, turned, known = ridge.spectrum(clean + noise(width, 3.0, 2), 3.0)
    assert known.nonzero().flatten().tolist() == [width - 2, width - 1]
    assert values.flip(0)[:2].tolist() == pytest.approx(
        [(turned[:, -1] @ clean @ turned[:, -1]).item(), (turned[:, -2] @ clean @ turned[:, -2]).item()],
        rel=0.1,
    )
    raw = torch.linalg.eigvalsh(clean + noise(width, 3.0, 2))
    assert raw.min() < -50 and values.min() >= 0  # what only noise makes is gone


LENGTHS = (551.0, 78.0, 43.0, 38.0, 29.0, 15.0, 10.0, 9.5, 7.6, 5.8, 5.6, 3.5, 2.8, 2.4, 2.0, 1.9, 1.3, 0.9)
SUMS = (12.0, 80.0, 3.6, 14.0, 41.0, 0.1, 13.0, 18.0, 5.4, 5.1, 15.0, 6.1, 0.1, 1.4, 0.2, 2.2, 1.0, 0.4)
"""Of descriptors of IMDB-BINARY: second moments along each direction, and how long class sums are there."""


@pytest.mark.parametrize("seed", range(3))
def test_weak_directions_that_noise_drowns_do_not_pass_for_large_weights(seed: int) -> None:
    """What leaks into them from those that noise has just drowned is more than their share allows."""
    width, deviation, few = 286, 1.0, len(LENGTHS)
    random = torch.Generator().manual_seed(seed)
    turned = torch.linalg.qr(torch.randn(width, width, generator=random, dtype=torch.float64))[0][:, :few]
    second = turned @ torch.diag(torch.tensor(LENGTHS, dtype=torch.float64)) @ turned.T
    clean = turned @ torch.tensor(SUMS, dtype=torch.float64)
    noisy = clean + deviation * torch.randn(width, generator=random, dtype=torch.float64)
    apart = deviation / math.sqrt(2)
    wanted, found = (
        ridge.weights(moments, torch.stack([sums, -sums], dim=1) / math.sqrt(2), 1.0, *by)
        for moments, sums, by in (
            (second, clean, (0.0, 0.0)),
            (second + noise(width, apart, seed + 50), noisy, (apart, deviation)),
        )
    )
    assert float(found.norm()) < 2 * float(wanted.norm())


def test_what_is_noise_alone_says_nothing() -> None:
    width = 50
    classes = torch.randn(width, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = ridge.weights(noise(width, 1.0, 4), classes, 1.0, 1.0, 1.0)
    assert torch.isfinite(found).all() and float(found.norm()) < 1


@pytest.mark.parametrize("second", [torch.zeros(4, 4), torch.ones(4, 4)])
def test_singular_moments_have_a_solution(second: torch.Tensor) -> None:
    found = ridge.weights(second.double(), torch.ones(4, 2, dtype=torch.float64), 1.0)
    assert torch.isfinite(found).all()


def test_noisy_moments_predict_better_than_the_closed_form_on_them() -> None:
    draw = torch.Generator().manual_seed(5)
    width, count = 60, 3000
    axes = torch.randn(width, width, generator=draw, dtype=torch.float64) * torch.logspace(0, -1.5, width)
    z = torch.randn(count, width, generator=draw, dtype=torch.float64) @ axes.T
    z = z / z.norm(dim=1, keepdim=True)
    y = (z @ torch.randn(width, 3, generator=draw, dtype=torch.float64)).argmax(1)
    t = ridge.targets(y, 3, 0.5).double()
    v = 12.0
    second = z.T @ z + noise(width, v, 6)
    classes = z.T @ t + torch.randn(width, 3, generator=draw, dtype=torch.float64) * v
    ours = (z @ ridge.weights(second, classes, 0.5, v, v)).argmax(1)
    plain = (z @ torch.linalg.solve(second + torch.eye(width), classes)).argmax(1)
    assert (ours == y).double().mean() > (plain == y).double().mean() + 0.1


def of_numbers(seed: int, count: int = 6000, width: int = 60) -> tuple[torch.Tensor, ...]:
    """Records, numbers in [-1, 1] that are mostly near one end, and their sums in the form that is sent."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=draw, dtype=torch.float64).abs()
    z = x / x.norm(dim=1, keepdim=True)
    weights = torch.randn(width, 1, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    numbers = (-0.6 + (z - z.mean(0)) @ weights / 2).clamp(-1, 1)
    return z, numbers, ridge.with_constant(z), ridge.with_count(numbers, 0.5)


def share_explained(found: torch.Tensor, numbers: torch.Tensor) -> float:
    return 1 - float((found - numbers).square().mean() / numbers.var(unbiased=False))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("own", [False, True])
def test_numbers_under_any_noise_are_hardly_worse_than_their_mean(seed: int, own: bool) -> None:
    """And without any nearly all of what is linear, an intercept far from the middle included."""
    _, numbers, records, targets = of_numbers(seed)
    second, sums = records.T @ records, records.T @ targets
    width, draw = len(sums), torch.Generator().manual_seed(seed)
    explained = []
    for deviation in (0.0, 0.05, 0.5, 5.0, 20.0):
        noisy = sums + deviation * torch.randn(sums.shape, generator=draw, dtype=torch.float64)
        if own:
            found = ridge.own_number_weights(noisy, records, 0.5, deviation)
        else:
            symmetric = noise(width, deviation, seed)
            found = ridge.number_weights(second + symmetric, noisy, 0.5, deviation, deviation)
        explained.append(share_explained(records @ found, numbers))
    assert explained[0] > 0.95 and min(explained) > -0.1, explained


def test_what_chance_alone_makes_likely_is_not_taken_for_weights() -> None:
    """Sums of few records and much noise: one direction in several says more than noise would, by chance."""
    _, numbers, records, targets = of_numbers(0, count=1500)
    sums, explained = records.T @ targets, []
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        noisy = sums + 5 * torch.randn(sums.shape, generator=draw, dtype=torch.float64)
        found = ridge.own_number_weights(noisy, records, 0.5, 5.0)
        explained.append(share_explained(records @ found, numbers))
    assert sum(one < -0.1 for one in explained) <= 1, explained


def test_where_everybody_s_mean_lies_from_the_reader_s_own_the_sums_say() -> None:
    """A reader all of whose records have more of what says most of the numbers."""
    z, numbers, records, targets = of_numbers(0)
    mean = numbers.mean()
    most = int((z.T @ (numbers - mean)).abs().argmax())
    there = z[:, most] > z[:, most].quantile(0.8)
    found = ridge.own_number_weights(records.T @ targets, records[there], 0.5, 0.01)
    says, true = float((records[there] @ found).mean() - mean), float(numbers[there].mean() - mean)
    assert abs(true) > 0.05
    assert says == pytest.approx(true, abs=0.5 * abs(true))


def test_how_many_there_are_comes_back_where_it_is_drowned_the_middle_does() -> None:
    _, numbers, records, targets = of_numbers(1)
    sums = records.T @ targets
    mean, count, _, deviation = ridge._less_their_mean(sums, 0.5, 0.0)
    assert (mean, count, deviation) == pytest.approx((float(numbers.mean()), len(numbers), 0.0))
    mean, _, _, _ = ridge._less_their_mean(0.01 * sums, 0.5, 100.0)
    assert abs(mean) < 0.01
    mean, count, _, _ = ridge._less_their_mean(-0.01 * sums, 0.5, 100.0)
    assert (abs(mean), count) == (0.0, 1.0)


def test_numbers_travel_over_links_of_like_alone() -> None:
    """Over a path of like numbers they come nearer to each other; over one of unlike ones they stay."""
    step = torch.arange(39)
    links = torch.cat([torch.stack([step, step + 1]), torch.stack([step + 1, step])], dim=1)
    rising = torch.linspace(-1, 1, 40)[:, None]
    rough = rising + 0.2 * torch.randn(40, 1, generator=torch.Generator().manual_seed(0))
    found = ridge.spread_numbers(rough, links)
    assert float((found - rising).square().mean()) < 0.7 * float((rough - rising).square().mean())
    assert float(found.max()) <= float(rough.max()) and float(found.min()) >= float(rough.min())
    unlike = torch.tensor([-1.0, 1.0] * 20)[:, None]
    assert torch.equal(ridge.spread_numbers(unlike, links), unlike)
