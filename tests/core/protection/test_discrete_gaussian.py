"""Discrete Gaussian draws: the right distribution, a bound that is one, randomness that nobody repeats.

The draws are not seeded, so statistical tests fail by chance once in a million runs.
"""

from __future__ import annotations

import math
import os
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import binom, chi2, chi2_contingency

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.protection import discrete_gaussian as module
from secure_fedgraph.core.protection.discrete_gaussian import DiscreteGaussian, discrete_gaussian

BY_CHANCE = 1e-6
DRAWS = 1_000_000


def ideal(sigma: float, reach: int) -> np.ndarray:
    """Masses of -reach..reach; float64 is enough for a million draws."""
    k = np.arange(-reach, reach + 1)
    mass = np.exp(-(k**2) / (2 * sigma**2))
    return mass / mass.sum()


def pools(expected: np.ndarray, least: float) -> np.ndarray:
    """Neighbouring values put together until each pool expects enough draws."""
    pool, gathered, found = 0, 0.0, np.empty(expected.size, dtype=int)
    for i, value in enumerate(expected):
        found[i] = pool
        gathered += value
        if gathered >= least:
            pool, gathered = pool + 1, 0.0
    return np.minimum(found, found.max() - (gathered < least and pool > 0))


def table_weights(noise: DiscreteGaussian) -> list[int]:
    """Each value's weight in units of 2**-128, read back from the table that draws."""
    bits = noise._index_bits
    capacity = 2 ** (128 - bits)
    found = [0] * 2**bits
    for column, (entry, finer) in enumerate(zip(noise._entries.tolist(), noise._finer.tolist(), strict=True)):
        threshold = ((entry >> bits) << 64) + finer
        found[column] += threshold
        found[entry % 2**bits] += capacity - threshold
    return found


def fit(drawn: np.ndarray, sigma: float, least: int) -> float:
    """The p-value of the chi-square test, over pools that expect at least so many draws."""
    reach = int(np.abs(drawn).max() + 12 * sigma)
    expected = drawn.size * ideal(sigma, reach)
    pool = pools(expected, least)
    seen = np.bincount(pool, np.bincount(drawn + reach, minlength=expected.size))
    expected = np.bincount(pool, expected)
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), expected.size - 1))


@pytest.mark.parametrize("sigma", [2.0, 2.7, 17.3, 300.0, 1024.0])
def test_draws_have_the_ideal_masses(sigma):
    drawn = discrete_gaussian(sigma).draw(DRAWS)
    assert drawn.dtype == np.int32
    # single values where they are many, and wide pools that see what is a little off everywhere
    assert fit(drawn, sigma, least=50) > BY_CHANCE
    assert fit(drawn, sigma, least=20_000) > BY_CHANCE


@pytest.mark.parametrize("sigma", [2.0, 300.0, 1024.0])
def test_the_chi_square_sees_one_percent(sigma):
    # the control: draws of a sigma that is 1 % off
    assert fit(discrete_gaussian(sigma * 1.01).draw(DRAWS), sigma, least=20_000) < BY_CHANCE


@pytest.mark.parametrize("sigma", [2.0, 64.0, 1024.0, 10_000.0])
def test_moments(sigma):
    drawn = discrete_gaussian(sigma).draw(DRAWS).astype(float) / sigma
    # standard errors of the mean, the variance and the fourth moment of a normal: 1, sqrt 2, sqrt 96
    assert abs(drawn.mean()) < 6 / math.sqrt(DRAWS)
    assert abs((drawn**2).mean() - 1) < 6 * math.sqrt(2 / DRAWS)
    assert abs((drawn**3).mean()) < 6 * math.sqrt(15 / DRAWS)
    assert abs((drawn**4).mean() - 3) < 6 * math.sqrt(96 / DRAWS)
    assert abs((drawn[1:] * drawn[:-1]).mean()) < 6 / math.sqrt(DRAWS)


@pytest.mark.parametrize("width", [3.0, 4.0, 4.5])
def test_tails(width):
    noise = discrete_gaussian(200.0)
    share = ideal(200.0, noise.reach)[np.abs(np.arange(-noise.reach, noise.reach + 1)) >= width * 200].sum()
    beyond = int((np.abs(noise.draw(DRAWS)) >= width * 200).sum())
    assert binom.cdf(beyond, DRAWS, share) > BY_CHANCE
    assert binom.sf(beyond - 1, DRAWS, share) > BY_CHANCE


@pytest.mark.parametrize("sigma", [3.0, 40.0])
def test_the_exact_sampler_of_opendp_draws_the_same(sigma):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=sigma)([0] * 50_000))
    ours = discrete_gaussian(sigma)
    most = max(int(np.abs(theirs).max()), ours.reach)
    pool = pools(50_000 * ideal(sigma, most), 25)
    drawn = ours.draw(200_000)
    table = np.array([np.bincount(pool[x + most], minlength=pool.max() + 1) for x in (theirs, drawn)])
    assert chi2_contingency(table).pvalue > BY_CHANCE


@pytest.mark.parametrize("sigma", [2.0, 2.3, 7.0, 100.1, 1024.0])
def test_the_table_is_within_its_bound(sigma):
    noise = DiscreteGaussian(sigma)
    weights = table_weights(noise)
    assert sum(weights) == 2**128
    inside, unused = weights[: 2 * noise.reach + 1], weights[2 * noise.reach + 1 :]
    assert not any(unused)
    assert inside == inside[::-1]
    with mpmath.workdps(80):
        scale = 2 * mpmath.mpf(sigma) ** 2
        far = noise.reach + int(10 * sigma)
        masses = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / scale) for k in range(far + 1)}
        total = masses[0] + 2 * sum(masses[k] for k in range(1, far + 1))
        apart = sum(
            abs(mpmath.mpf(weight) / 2**128 - masses[abs(k)] / total)
            for k, weight in zip(range(-noise.reach, noise.reach + 1), inside, strict=True)
        )
        apart += 2 * sum(masses[k] for k in range(noise.reach + 1, far + 1)) / total
        distance = apart / 2
        assert distance <= noise.total_variation < 2**-80
        # and not far above what there is: the geometric bound on the tail costs a hundredth of it
        assert noise.total_variation <= distance * mpmath.mpf("1.02") + mpmath.mpf(2) ** -111


def test_the_bound_holds_over_the_whole_range():
    for sigma in (2.0, 2.0000001, 3.14159, 50.5, 16384.0):
        noise = DiscreteGaussian(sigma)
        assert 0 < noise.total_variation < 2**-80
        assert noise.reach < 11 * sigma


@pytest.mark.parametrize("x", [Fraction(1, 8), Fraction(1, 2 * 300**2), Fraction(999, 1000)])
def test_the_exponential_is_enclosed(x):
    below, above = module._exponential(x, 2**256)
    with mpmath.workdps(120):
        exact = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) * mpmath.mpf(2) ** 256
        assert below <= exact <= above
    assert above - below <= 3


def test_masses_are_enclosed():
    q, unit = Fraction(9, 10), 2**256
    below = list(module._masses(math.floor(q * unit), unit, 40, up=False))
    above = list(module._masses(math.ceil(q * unit), unit, 40, up=True))
    for k in range(41):
        assert below[k] <= q ** (k * k) * unit <= above[k]
        assert above[k] - below[k] < 2**20


def test_equal_bits_are_settled_by_more_of_them(monkeypatch):
    noise = DiscreteGaussian(5.0)
    bits = noise._index_bits
    column = next(
        c for c, e in enumerate(noise._entries.tolist()) if e % 2**bits != c and e >> bits and noise._finer[c]
    )
    entry, finer = int(noise._entries[column]), int(noise._finer[column])
    word = (entry >> bits) << bits | column

    class Stream:
        def __init__(self, key: bytes) -> None:
            pass

        def into(self, out: memoryview) -> None:
            words = [word, word, word - 2**bits, word + 2**bits]
            np.asarray(out)[:] = words if len(out) == 4 else [finer - 1, finer]

    monkeypatch.setattr(module, "KeyStream", Stream)
    own, other = column - noise.reach, entry % 2**bits - noise.reach
    assert noise.draw(4).tolist() == [own, other, own, other]


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_the_extreme_words_stay_inside(monkeypatch, byte):
    class Stream:
        def __init__(self, key: bytes) -> None:
            pass

        def into(self, out: memoryview) -> None:
            np.asarray(out)[:] = int.from_bytes(8 * byte)

    monkeypatch.setattr(module, "KeyStream", Stream)
    noise = DiscreteGaussian(5.0)
    assert np.abs(noise.draw(3)).max() <= noise.reach


@pytest.mark.parametrize("size", [0, 1, module._BLOCK - 1, module._BLOCK, module._BLOCK + 1, 100_000])
def test_as_many_as_asked_for(size):
    drawn = discrete_gaussian(50.0).draw(size)
    assert drawn.shape == (size,)
    assert size < 100 or np.unique(drawn).size > 50


def test_a_key_serves_so_many_words(monkeypatch):
    keys = []
    monkeypatch.setattr(module.os, "urandom", lambda size: keys.append(size) or bytes([len(keys)]) * size)
    DiscreteGaussian(9.0).draw(2 * module._WORDS_A_KEY + 1)
    assert keys.count(32) == 3


class TestUnderAKey:
    KEY = bytes(range(32))

    @pytest.mark.parametrize("size", [1, module._BLOCK + 1, module._WORDS_A_KEY + 3])
    def test_the_same_key_gives_the_same_draws(self, size):
        noise = discrete_gaussian(300.0)
        drawn = noise.draw(size, self.KEY)
        assert np.array_equal(drawn, noise.draw(size, self.KEY))
        assert np.array_equal(drawn[: size // 2], noise.draw(size // 2, self.KEY))

    def test_another_key_gives_others(self):
        noise = discrete_gaussian(1000.0)
        one, other = noise.draw(1000, self.KEY), noise.draw(1000, bytes(32))
        assert (one == other).sum() < 12

    def test_no_part_repeats_another(self):
        drawn = discrete_gaussian(1000.0).draw(2 * module._WORDS_A_KEY, self.KEY)
        one, other = drawn[: module._WORDS_A_KEY], drawn[module._WORDS_A_KEY :]
        assert (one == other).mean() < 0.001

    @pytest.mark.parametrize("sigma", [2.0, 18.3, 1200.0])
    def test_the_distribution_is_the_same(self, sigma):
        assert fit(discrete_gaussian(sigma).draw(DRAWS, os.urandom(32)), sigma, 1000) > BY_CHANCE

    def test_nothing_of_it_is_the_operating_systems(self, monkeypatch):
        """The further bits too follow from the key: else whoever takes the noise off would miss a value."""
        noise = DiscreteGaussian(5.0)
        monkeypatch.setattr(module.os, "urandom", None)
        entries = np.array(noise._entries)
        words = np.arange(64, dtype=np.uint64) % np.uint64(2**noise._index_bits)
        found = [
            noise._settle(words, entries[words.astype(int)], module._stream(self.KEY, b"further bits", 0))
            for _ in range(2)
        ]
        assert np.array_equal(*found)
        noise.draw(10, self.KEY)


def test_no_seed_repeats_it():
    noise, draws = discrete_gaussian(1000.0), []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        draws.append(noise.draw(1000))
    # two draws are equal once in 3545
    assert (draws[0] == draws[1]).sum() < 12


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_that_fork_draw_differently():
    noise, drawn = discrete_gaussian(1000.0), []
    noise.draw(10)  # anything that were kept would now be the same in both
    for _ in range(2):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, noise.draw(1000).tobytes())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            drawn.append(np.frombuffer(pipe.read(), dtype=np.int32))
        os.waitpid(child, 0)
    drawn.append(noise.draw(1000))
    assert all(one.size == 1000 for one in drawn)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (drawn[one] == drawn[other]).sum() < 12


def test_one_table_a_sigma():
    assert discrete_gaussian(77.0) is discrete_gaussian(77.0)


@pytest.mark.parametrize(
    ("sigma", "mend"),
    [
        (1.99, "2 to 16384 grid steps: use a finer grid, or more noise"),
        (0.0, "use a finer grid"),
        (-3.0, "use a finer grid"),
        (math.nan, "2 to 16384 grid steps"),
        (math.inf, "use a coarser grid, or less noise"),
        (16385.0, "use a coarser grid"),
    ],
)
def test_sigmas_that_are_none(sigma, mend):
    with pytest.raises(BadInput, match=mend):
        discrete_gaussian(sigma)
