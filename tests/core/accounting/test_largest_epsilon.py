"""Where a sampler's distance from its ideal is all of delta, as docs/guarantees.md says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from secure_fedgraph.core.accounting.epsilon import epsilon
from secure_fedgraph.core.accounting.events import DiscreteRelease, Event, GaussianRelease, SamplingError
from secure_fedgraph.core.protection.gaussian import discrete_gaussian
from secure_fedgraph.core.protection.rounded_gaussian import rounded_gaussian

SIGMA, SHARES = 1000, 10


def drawn_alone(multiplier: float) -> Mapping[Event, int]:
    """Few values, one round."""
    distance = 10_000 * rounded_gaussian(SIGMA).total_variation
    return {GaussianRelease(multiplier): 1, SamplingError(distance): 1}


def drawn_in_shares(multiplier: float) -> Mapping[Event, int]:
    """A million values, twenty rounds."""
    width, rounds = 1_000_000, 20
    distance = width * SHARES * discrete_gaussian(SIGMA).total_variation
    one = DiscreteRelease(
        multiplier * rounds**0.5, SHARES, sigma=SIGMA, width=width, total_variation=distance
    )
    return {one: rounds}


@pytest.mark.parametrize(("events", "about"), [(drawn_alone, 34), (drawn_in_shares, 24)])
def test_the_largest_finite_epsilon_of_uploads(
    events: Callable[[float], Mapping[Event, int]], about: float
) -> None:
    found = [epsilon(events(float(one)), 1e-5).epsilon for one in np.geomspace(0.1, 1, 40)]
    assert np.isinf(found[0])
    assert max(one for one in found if np.isfinite(one)) == pytest.approx(about, abs=1.5)
