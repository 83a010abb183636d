"""Sums of the units that secret coins took: what one unit moves, whose parts are in, what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parties import NAMES, session
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.core.accounting.epsilon import epsilon
from secure_fedgraph.core.accounting.events import GaussianRelease, SampledGaussian
from secure_fedgraph.core.channel import Channel, Reveal, UnitContributionSampled
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.pooling import sampled_sum
from secure_fedgraph.core.upload import ContributionSample, Upload
from secure_fedgraph.policies import distributed_dp, local_dp, plaintext

TAKEN = UnitContributionSampled(0.5, rate=0.25, records=64)
CHANNEL = Channel("gradient", Reveal.SUM, Unit.NODE, unit_contribution=TAKEN)
UNITS = 6


def parts(seed: int) -> ContributionSample:
    """From far too short to far too long."""
    draw = torch.Generator().manual_seed(seed)
    long = torch.logspace(-2, 2, UNITS)[:, None, None]
    values = {"a": torch.randn(UNITS, 3, 2, generator=draw) * long, "b": torch.randn(UNITS, generator=draw)}
    return ContributionSample(values, torch.arange(UNITS))


def summed(one: ContributionSample, grid: float = 0.0) -> np.ndarray:
    return sampled_sum(one, TAKEN, Unit.NODE, grid)[1]


@given(st.integers(0, 2**31), st.sampled_from([0.0, 1e-6, 1e-3]))
def test_no_unit_moves_the_sum_by_more_than_was_declared(seed: int, grid: float) -> None:
    one = parts(seed)
    for unit in range(UNITS):
        without = one.of(torch.tensor([u for u in range(UNITS) if u != unit]))
        moved = np.linalg.norm(summed(one, grid) - summed(without, grid))
        assert 0.49 < moved <= 0.5 if unit == UNITS - 1 and grid < 1e-3 else moved <= 0.5


def test_parts_of_other_units_are_left_out_and_one_unit_has_one_part() -> None:
    one = ContributionSample({"a": torch.eye(5)}, torch.tensor([7, 2, 2, 9, -1]))
    kept = one.of(torch.tensor([2, 7, 8]))
    assert kept.units.tolist() == [7, 2]
    assert torch.equal(kept.values["a"], torch.eye(5)[:2])


@pytest.mark.parametrize(
    "units",
    [
        torch.zeros(2, 2, dtype=torch.int64),
        torch.tensor([0.0, 1.0]),
        torch.tensor([True, False]),
        torch.tensor([0]),
    ],
)
def test_units_are_one_whole_number_a_row(units: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="whole number a row"):
        ContributionSample({"a": torch.ones(2, 1)}, units).of(torch.arange(2))


class Everything(Algorithm):
    """Gives the parts of all units, and those of the coins' units a second time, and says who they were."""

    name = "everything"
    CHANNEL = CHANNEL

    @CHANNEL.answer
    def work(self, client: Any, given: Any) -> ContributionSample:
        client.memory["coins"] = client.sampled()
        nodes = torch.arange(int(client.graph.num_nodes))
        units = torch.cat([nodes, client.sampled()])
        return ContributionSample({"w": torch.eye(len(nodes))[units]}, units)


def test_the_client_s_own_coins_decide_whose_parts_are_sent() -> None:
    made = session(plaintext(), (CHANNEL,), algorithm=Everything()).set_up()
    for client in made.clients.values():
        client.graph = Data(x=torch.zeros(40, 1), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    seen = []
    for _ in range(3):
        total = made.round().reduce(CHANNEL, {}).total["w"][0]
        expected = sum(
            torch.bincount(client.memory["coins"], minlength=len(total)) for client in made.clients.values()
        )
        assert torch.allclose(total / 0.5, expected.to(total.dtype), atol=1e-5)  # clipped a little shorter
        seen.append(expected.tolist())
    assert seen[0] != seen[1] != seen[2], "coins are flipped anew for each upload"


def test_no_other_channel_has_coins() -> None:
    made = session(plaintext(), (CHANNEL,), algorithm=Everything()).set_up()
    with pytest.raises(BadInput, match="UnitContributionSampled"):
        _ = next(iter(made.clients.values())).sampled()


@pytest.mark.parametrize("relation", ["zero-out", "replace"])
def test_an_upload_costs_what_a_sampled_step_costs(relation: str) -> None:
    """A replaced unit moves the sum by two norms, which are the multiplier's measure."""
    bound = local_dp(9.0, 2.0, relation).bind([CHANNEL], NAMES)["gradient"]
    event, *_ = bound.releases(10)["server"]
    assert event == SampledGaussian(4.0 if relation == "replace" else 2.0, 0.25, 1, relation)
    sure = epsilon([GaussianRelease(2.0)] * 50, 1e-5).epsilon
    assert epsilon([event] * 50, 1e-5).epsilon < 0.5 * sure


def test_shares_cost_what_their_sum_costs() -> None:
    bound = distributed_dp(9.0, 2.0).bind([CHANNEL], NAMES)["gradient"]
    events = bound.releases(10)["server"]
    event = events[0]
    assert isinstance(event, SampledGaussian) and (event.rate, event.steps) == (0.25, 1)
    assert 2.0 * (1 - 1e-5) < event.noise_multiplier < 2.0, "continuous noise is a little smaller"
    assert not any(isinstance(one, GaussianRelease) for one in events)


def test_a_channel_of_samples_takes_nothing_else() -> None:
    bound = local_dp(9.0, 1.0).bind([CHANNEL], NAMES)["gradient"]
    with pytest.raises(TypeError, match="ContributionSample"):
        bound.check(Upload({"a": torch.zeros(1)}))


@pytest.mark.parametrize(("rate", "records"), [(0.0, 4), (1.1, 4), (0.5, 0)])
def test_impossible_declarations_are_refused(rate: float, records: int) -> None:
    with pytest.raises(BadInput, match=str(rate)):
        UnitContributionSampled(1.0, rate=rate, records=records)
