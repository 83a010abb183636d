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
