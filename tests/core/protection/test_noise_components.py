"""A share of noise in parts: what any sum that opens needs of them is the whole noise, and hardly more."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.core.protection.noise_components import MOST, NARROWEST, ONE_PART, RATIO, split_share

GRIDS = st.sampled_from([2**k for k in range(6, 15)])


@st.composite
def federations(draw: st.DrawFn) -> tuple[int, int, int]:
    """Clients, quorum, colluders: at least one honest client in every quorum."""
    clients = draw(st.integers(2, 400))
    quorum = draw(st.integers(2, clients))
    return clients, quorum, draw(st.integers(1, quorum - 1))


def kept(parts, uploads: int) -> Fraction:
    """The exact variance of what a sum needs of one share."""
    needed = len(parts.removable) - parts.unneeded(uploads)
    return sum((Fraction(width) ** 2 for width in (parts.base, *parts.removable[:needed])), Fraction())


@given(federations(), GRIDS)
def test_every_sum_that_opens_keeps_the_whole_noise(federation, sigma):
    clients, quorum, colluders = federation
    parts = split_share(sigma, clients, quorum, colluders)
    for uploads in range(quorum, clients + 1):
        assert (uploads - colluders) * kept(parts, uploads) >= (quorum - colluders) * sigma**2


@given(federations(), GRIDS)
def test_fewer_uploads_never_keep_less(federation, sigma):
    """A server that shows a shorter list gets fewer keys."""
    clients, quorum, colluders = federation
    parts = split_share(sigma, clients, quorum, colluders)
    shown = [parts.unneeded(uploads) for uploads in range(clients + 1)]
    assert shown == sorted(shown)
    assert all(parts.unneeded(uploads) == 0 for uploads in range(quorum + 1) if quorum < clients)


@given(federations(), GRIDS)
def test_parts_are_wide_or_there_is_one(federation, sigma):
    parts = split_share(sigma, *federation)
    assert len(parts.removable) <= MOST
    assert parts.base == sigma or min(parts.removable) >= NARROWEST
    assert parts.base <= sigma
    assert parts.variance(0) == pytest.approx(sigma**2, rel=1e-12)


@given(st.integers(10, 400), st.floats(0.75, 0.95))
def test_hardly_more_than_it_needs_is_left(clients, share):
    """With levels a tenth apart what is left is at most that much more, up to whole clients."""
    quorum, colluders = math.ceil(share * clients), math.ceil(0.1 * clients)
    parts = split_share(4096, clients, quorum, colluders)
    whole = (quorum - colluders) * 4096**2
    for uploads in range(quorum, clients + 1):
        assert (uploads - colluders) * parts.variance(uploads) <= whole * RATIO * (
            1 + 3 / (quorum - colluders)
        )
    assert (clients - colluders) * parts.variance(clients) == pytest.approx(whole)


@pytest.mark.parametrize(("clients", "quorum", "sigma"), [(3, 3, 4096), (400, 399, 64)])
def test_where_there_is_nothing_to_gain_a_share_is_one_part(clients, quorum, sigma):
    parts = split_share(sigma, clients, quorum, 1)
    assert parts.all == (sigma,)
    assert not parts.removable
    assert not ONE_PART.unneeded(10)
