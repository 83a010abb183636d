"""Shamir's sharing: any threshold of shares gives the secret, fewer say nothing, wrong ones are noticed."""

from __future__ import annotations

import itertools
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.core.carriers.secagg import shamir
from secure_fedgraph.core.carriers.secagg.shamir import (
    PRIME,
    candidates,
    combine,
    random_secret,
    split,
    weights,
)
from secure_fedgraph.core.errors import BadInput, HostileMessage

VALUES = st.one_of(st.integers(0, PRIME - 1), st.sampled_from([0, 1, PRIME - 1]))


@st.composite
def sharings(draw):
    points = draw(st.lists(st.integers(1, 2**20), min_size=1, max_size=12, unique=True))
    return draw(st.lists(VALUES, min_size=1, max_size=3)), draw(st.integers(1, len(points))), points


@given(sharings(), st.randoms(use_true_random=False))
def test_any_threshold_of_shares_gives_every_secret(sharing, random):
    values, threshold, points = sharing
    made = split(values, threshold, points)
    some = random.sample(points, threshold)
    for place, value in enumerate(values):
        assert combine({point: made[point][place] for point in some}) == value


@given(sharings(), VALUES)
def test_one_share_too_few_fits_every_secret(sharing, other):
    """To whoever holds one share less, each value is as possible: some last share would give it."""
    values, threshold, points = sharing
    if threshold < 2:
        return
    shares = {point: share[0] for point, share in split(values, threshold, points).items()}
    held = points[: threshold - 1]
    last = points[threshold - 1]
    # the polynomial through the held shares and (0, other), evaluated at the last point by Lagrange
    nodes = {0: other, **{point: shares[point] for point in held}}
    found = 0
    for x, y in nodes.items():
        above = below = 1
        for z in nodes:
            if z != x:
                above, below = above * (last - z) % PRIME, below * (x - z) % PRIME
        found = (found + y * above * pow(below, -1, PRIME)) % PRIME
    assert combine({**{point: shares[point] for point in held}, last: found}) == other


def test_shares_of_one_secret_differ_each_time_and_are_spread():
    one, two = (split([7], 2, [1, 2])[1][0] for _ in range(2))
    assert one != two
    tops = [split([0], 2, [1, 2])[1][0] >> 254 for _ in range(400)]
    assert 120 < sum(tops) < 280  # a half, within eight standard deviations


def test_the_prime_is_one():
    assert pow(3, PRIME - 1, PRIME) == 1 and all(PRIME % p for p in (2, 3, 5, 7, 11, 13, 17, 19))
    for witness in range(2, 40):  # Miller and Rabin
        odd, twos = PRIME - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        found = pow(witness, odd, PRIME)
        chain = [found := pow(found, 2, PRIME) if i else found for i in range(twos)]
        assert chain[0] == 1 or PRIME - 1 in chain


def test_known_shares(monkeypatch):
    # f(x) = 1234 + 166 x + 94 x**2, the example of Wikipedia's page, small enough for this prime too
    drawn = iter([94, 166])
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda _: next(drawn))
    made = split([1234], 3, [1, 2, 3, 4, 5, 6])
    assert [made[x][0] for x in range(1, 7)] == [1494, 1942, 2578, 3402, 4414, 5614]
    assert combine({2: 1942, 4: 3402, 5: 4414}) == 1234


def test_randomness_is_the_systems(monkeypatch):
    drawn = []
    real = secrets.randbelow
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda top: drawn.append(top) or real(top))
    split([1, 2], 4, [1, 2, 3, 4])
    assert drawn == [PRIME] * 6  # three coefficients for each of two secrets
    assert 0 <= random_secret() < PRIME


@pytest.mark.parametrize(
    ("values", "threshold", "points", "sentence"),
    [
        ([1], 0, [1, 2], "threshold 0"),
        ([1], 3, [1, 2], "threshold 3: 2 holders of a share cannot reach it"),
        ([1], 1, [0, 1], "the share at zero is the secret"),
        ([1], 2, [1, 1], "distinct"),
        ([1], 2, [1, PRIME + 1], "distinct"),
        ([PRIME], 1, [1], "a number from 0"),
        ([-1], 1, [1], "a number from 0"),
    ],
)
def test_refusals(values, threshold, points, sentence):
    with pytest.raises(BadInput, match=sentence):
        split(values, threshold, points)


def test_shares_at_one_point_twice_or_at_zero_are_refused():
    for points in ((1, 1), (0, 1)):
        with pytest.raises(BadInput):
            weights(points)


class TestALiar:
    def shares(self, threshold=3, holders=5):
        return {p: s[0] for p, s in split([41], threshold, range(1, holders + 1)).items()}

    def test_one_wrong_share_is_left_out_by_some_subset(self):
        for liar in range(1, 6):
            wrong = self.shares()
            wrong[liar] = (wrong[liar] + 1) % PRIME
            found = list(candidates(wrong, 3))
            assert 41 in found
            assert len(set(found)) > 1

    def test_with_no_share_to_spare_nothing_fits(self):
        wrong = self.shares(holders=3)
        wrong[2] += 1
        assert 41 not in set(candidates(wrong, 3))

    def test_the_tries_are_bounded(self):
        assert len(list(candidates(self.shares(8, 20), 8))) == shamir.TRIES
        subsets = len(list(itertools.combinations(range(5), 3)))
        assert len(list(candidates(self.shares(), 3))) == subsets + 1  # and what decoding gives

    def test_a_share_outside_the_field_is_refused(self):
        with pytest.raises(HostileMessage, match="not a number of the field"):
            list(candidates({1: 1, 2: PRIME}, 2))
