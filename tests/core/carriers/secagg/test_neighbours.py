"""Who masks with whom: the numbers meet the formulas that are stated, and nobody chooses the graph."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from secure_fedgraph.core.carriers.secagg.neighbours import (
    AVAILABILITY,
    COMPLETE,
    GRINDING,
    SECURITY,
    SumThresholds,
    around,
    circle,
    near,
    thresholds,
)


def names(count):
    return tuple(f"c{i:05d}" for i in range(count))


@given(st.integers(2, 3000), st.floats(0, 0.99), st.data())
@settings(max_examples=60, deadline=None)
def test_two_lists_cannot_both_be_signed(cohort, colluders, data):
    present = data.draw(st.integers(2, min(cohort, 60)))
    made = thresholds(cohort, present, colluders, 0.2)
    bad = math.floor(colluders * cohort)
    # each honest client signs one list, each colluder both
    assert 2 * made.signatures > cohort + bad
    assert 2 * (made.signatures - 1) <= cohort + bad  # and no more than that is asked for
    assert made.signatures <= cohort


@given(st.integers(2, COMPLETE), st.floats(0, 0.5))
def test_small_cohorts_are_complete(count, colluders):
    made = thresholds(count, count, colluders, 0.2)
    assert made.degree == count - 1
    assert made.shares == made.signatures


def rare(population, marked, draws, least, times, bits):
    """The stated bound, by the definition, in fractions."""
    hit = sum(
        math.comb(marked, h) * math.comb(population - marked, draws - h)
        for h in range(max(least, 0), min(marked, draws) + 1)
    )
    return Fraction(hit, math.comb(population, draws)) * times <= Fraction(1, 2**bits)


@pytest.mark.parametrize("count", [33, 40, 100, 333, 1000])
@pytest.mark.parametrize("colluders", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("dropouts", [0.05, 0.2])
def test_large_cohorts_meet_the_formulas(count, colluders, dropouts):
    made = thresholds(count, count, colluders, dropouts)
    bad, gone, k, t = (
        math.floor(colluders * count + 1e-9),
        math.ceil(dropouts * count - 1e-9),
        made.degree,
        made.shares,
    )
    assert k < count - 1
    assert k % 2 == 0
    assert 2 * t > k + 1
    assert rare(count - 1, bad, k, 2 * t - k - 1, count, SECURITY + GRINDING)
    assert rare(count, gone, k + 1, k + 2 - t, count, AVAILABILITY)
    assert not rare(count, gone, k + 1, k + 1 - t, count, AVAILABILITY)  # one share more is one too many
    if k > 2:  # the smallest: with two neighbours less no number of shares meets both
        assert not any(
            2 * s > k - 1
            and rare(count - 1, bad, k - 2, 2 * s - k + 1, count, SECURITY + GRINDING)
            and rare(count, gone, k - 1, k - s, count, AVAILABILITY)
            for s in range(2, k)
        )


def test_the_formulas_are_the_hypergeometric_ones():
    # against scipy's distribution, where floating point reaches
    made = thresholds(1000, 1000, 0.1, 0.2)
    assert hypergeom(999, 100, made.degree).sf(2 * made.shares - made.degree - 2) * 1000 <= 2.0**-80
    assert hypergeom(1000, 200, made.degree + 1).sf(made.degree + 1 - made.shares) * 1000 <= 2.0**-20


def test_numbers_that_the_documentation_names():
    assert [thresholds(n, n, 0.1, 0.2).degree for n in (33, 100, 1000, 10_000)] == [18, 50, 232, 346]
    assert thresholds(10, 10, 0.1, 0.2) == SumThresholds(6, 6, 9)


def test_fewer_that_advertise_need_more_neighbours():
    # colluders do not drop out by themselves: among those left they are more
    assert thresholds(1000, 700, 0.1, 0.2).degree > thresholds(700, 700, 0.1, 0.2).degree


def test_so_many_colluders_that_nobody_may_be_left_out():
    assert thresholds(40, 40, 0.9, 0.2).degree == 39


class TestGraph:
    @given(st.integers(4, 60), st.binary(min_size=1, max_size=8), st.data())
    def test_regular_symmetric_without_loops(self, count, seed, data):
        degree = 2 * data.draw(st.integers(1, (count - 2) // 2))
        graph = around(circle(names(count), seed), degree)
        for name, others in graph.items():
            assert len(set(others)) == len(others) == degree
            assert name not in others
            assert list(others) == sorted(others)
            assert all(name in graph[other] for other in others)
        assert nx.is_connected(nx.Graph([(a, b) for a in graph for b in graph[a]]))

    @given(st.integers(2, 20), st.integers(0, 5))
    def test_a_degree_of_everybody_is_complete(self, count, more):
        graph = around(circle(names(count), b"x"), count - 1 + more)
        assert all(set(others) == set(names(count)) - {name} for name, others in graph.items())

    def test_one_clients_view_is_the_graphs(self):
        order = circle(names(50), b"seed")
        graph = around(order, 6)
        assert all(near(order, 6, place) == graph[name] for place, name in enumerate(order))

    def test_it_hangs_on_the_seed_and_not_on_the_order_of_the_names(self):
        listed = names(60)
        assert circle(listed, b"1") == circle(listed[::-1], b"1")
        one, two = around(circle(listed, b"1"), 8), around(circle(listed, b"2"), 8)
        assert sum(one[n] != two[n] for n in listed) > 55

    def test_every_pair_is_as_likely(self):
        count, degree, seeds = 12, 4, 3000
        met = np.zeros((count, count))
        for seed in range(seeds):
            for name, others in around(circle(names(count), seed.to_bytes(4, "big")), degree).items():
                for other in others:
                    met[int(name[1:]), int(other[1:])] += 1
        pairs = [met[a, b] / seeds for a, b in itertools.combinations(range(count), 2)]
        expected = degree / (count - 1)
        spread = (expected * (1 - expected) / seeds) ** 0.5
        assert max(abs(p - expected) for p in pairs) < 5 * spread


@pytest.mark.parametrize("seed", range(3))
def test_drop_outs_by_chance_leave_one_sum(seed):
    """Honest survivors stay connected: no part of the sum stands alone. A simulation beside the formula."""
    made, listed = thresholds(300, 300, 0.1, 0.2), names(300)
    generator = np.random.default_rng(seed)
    for trial in range(20):
        graph = around(circle(listed, bytes([seed, trial])), made.degree)
        there = set(generator.choice(listed, 240, replace=False))
        honest = set(sorted(there)[:216])
        inside = nx.Graph()
        inside.add_nodes_from(honest)
        inside.add_edges_from((a, b) for a in honest for b in graph[a] if b in honest)
        assert nx.is_connected(inside)
        assert all(len(there & {*graph[n], n}) >= made.shares for n in listed)
