"""Gaussian noise: its scale, its side, its source."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from parties import NAMES, scope
from scipy.stats import kstest

from secure_fedgraph.errors import BadInput, Unbound
from secure_fedgraph.privacy import noise
from secure_fedgraph.privacy.noise import Gaussian, standard_normal
from secure_fedgraph.privacy.protection import Sensitivity, Terms
from secure_fedgraph.protocol import Channel, Reveal

TERMS = Terms(Channel("update", Reveal.SUM), NAMES, "zero-out")


def bound(multiplier: float, l2: float, by: str = "client") -> Gaussian:
    stage, after = Gaussian(multiplier, by=by).bind(Sensitivity(l2), TERMS)
    assert after == Sensitivity(l2, noised_by=by)
    assert isinstance(stage, Gaussian)
    return stage


def test_the_scale_is_multiplier_times_sensitivity():
    assert bound(1.5, 0.2).scale == pytest.approx(0.3)
    drawn = bound(1.5, 0.2).apply(np.zeros((1, 100_000)), scope())
    # the standard error of a standard deviation of 1e5 draws is 0.22 %: 3 % is 13 of them
    assert drawn.std() == pytest.approx(0.3, rel=0.03)
    assert abs(drawn.mean()) < 0.3 * 6 / math.sqrt(100_000)


def test_draws_are_normal():
    assert kstest(standard_normal((50_000,)), "norm").pvalue > 1e-7


def test_each_side_adds_its_own_and_leaves_the_others():
    zeros = np.zeros((1, 10))
    assert np.count_nonzero(bound(1.0, 1.0).apply(zeros, scope())) == 10
    assert np.count_nonzero(bound(1.0, 1.0).undo(zeros, scope())) == 0
    assert np.count_nonzero(bound(1.0, 1.0, "server").apply(zeros, scope())) == 0
    assert np.count_nonzero(bound(1.0, 1.0, "server").undo(zeros, scope())) == 10


def test_against_whom():
    assert Gaussian(1.0).noise().against == {"server", "peers", "outsider"}
    assert Gaussian(1.0, by="server").noise().against == {"peers", "outsider"}


def test_no_seed_repeats_it():
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        draws.append(standard_normal((1000,)))
    assert not np.any(draws[0] == draws[1])


@pytest.mark.parametrize(("byte", "sign"), [(b"\xff", 1), (b"\x00", -1)])
def test_the_extreme_words_give_finite_and_symmetric_draws(monkeypatch, byte, sign):
    # The largest uniform is 1 - 2**-53, whose normal quantile is 8.21; at 1 it would be infinite.
    monkeypatch.setattr(noise.os, "urandom", lambda size: byte * size)
    assert standard_normal((2,)) == pytest.approx(sign * 8.2095, abs=1e-3)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
def test_multipliers_that_are_none(multiplier):
    with pytest.raises(BadInput, match=r"noise needs a positive number; set --multiplier 1.0"):
        Gaussian(multiplier)


def test_by_nobody_known():
    with pytest.raises(BadInput, match="noise by 'peer': use 'client' or 'server'"):
        Gaussian(1.0, by="peer")


def test_unbounded():
    with pytest.raises(Unbound, match=r"channel 'update': .* put Clip\(norm\) in front"):
        Gaussian(1.0).bind(Sensitivity(), TERMS)
