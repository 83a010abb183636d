"""Moments of records: what one record moves, by brute force, rounded and not; what comes back."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parties import NAMES, scope

from secure_fedgraph.core.channel import Channel, Reveal, UnitContributionMoments
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.protection.moments import moment_sums
from secure_fedgraph.core.upload import ContributionMoments, Upload, moments_of
from secure_fedgraph.models.ridge import records as ridge_records
from secure_fedgraph.models.ridge import with_constant, with_count
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp

TOUCHES = UnitContributionMoments(targets=0.5, records=16, second=True)
CHANNEL = Channel("moments", Reveal.SUM, Unit.NODE, unit_contribution=TOUCHES)
RECORDS, WIDTH, CLASSES = 6, 4, 3


def parts(seed: int, length: float = 1.0) -> ContributionMoments:
    """Records from far too short to far too long; one is along an axis, where a product is longest."""
    draw = torch.Generator().manual_seed(seed)
    records = torch.randn(RECORDS, WIDTH, generator=draw) * torch.logspace(-2, 2, RECORDS)[:, None] * length
    records[0] = torch.tensor([7.0, 0, 0, 0])
    return ContributionMoments(records, torch.randn(RECORDS, CLASSES, generator=draw) * 3)


def zeroed(one: ContributionMoments, unit: int) -> ContributionMoments:
    records, targets = one.records.clone(), one.targets.clone()
    records[unit], targets[unit] = 0.0, 0.0
    return ContributionMoments(records, targets)


def summed(one: ContributionMoments, contribution: UnitContributionMoments = TOUCHES, grid: float = 0.0):
    return moment_sums(one, contribution, Unit.NODE, grid)[1]


@given(st.integers(0, 2**31), st.sampled_from([0.0, 1e-6, 1e-4, 1e-3]), st.booleans())
def test_no_record_moves_the_sums_by_more_than_was_declared(seed: int, grid: float, second: bool) -> None:
    contribution = UnitContributionMoments(targets=0.5, records=16, second=second)
    one = parts(seed)
    whole = summed(one, contribution, grid)
    for unit in range(RECORDS):
        moved = np.linalg.norm(whole - summed(zeroed(one, unit), contribution, grid))
        assert moved <= contribution.norm * (1 + 1e-12)


@given(st.integers(0, 2**31), st.sampled_from([0.0, 1e-6, 1e-4]), st.booleans(), st.sampled_from([0.3, 1.0]))
def test_no_replaced_record_moves_them_by_more(seed: int, grid: float, second: bool, targets: float) -> None:
    contribution = UnitContributionMoments(targets=targets, records=16, second=second)
    one, other = parts(seed), parts(seed + 1)
    whole = summed(one, contribution, grid)
    for unit in range(RECORDS):
        records, wanted = one.records.clone(), one.targets.clone()
        # from far apart to nearly alike, with the opposite target
        records[unit] = other.records[unit] + 0.5 * unit * one.records[unit]
        wanted[unit] = -one.targets[unit]
        moved = np.linalg.norm(whole - summed(ContributionMoments(records, wanted), contribution, grid))
        assert moved <= contribution.replaced * (1 + 1e-12)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("grid", [0.0, 1e-6])
def test_no_record_with_a_number_moves_them_by_more(second: bool, grid: float) -> None:
    """Every number of a grid of its range on every kind of record; the ends of the range reach the bound."""
    contribution = UnitContributionMoments(targets=0.5, records=16, second=second)
    given = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0))
    kinds = ridge_records(torch.cat([given, torch.eye(WIDTH), torch.zeros(1, WIDTH)]))
    records = with_constant(kinds)
    numbers = torch.linspace(-1, 1, 9)
    every = ContributionMoments(
        records.repeat_interleave(len(numbers), 0), with_count(numbers[:, None], 0.5).repeat(len(records), 1)
    )
    assert float(every.records.norm(dim=1).max()) <= 1 + 1e-6  # so the door cuts no honest record
    assert float(every.targets.norm(dim=1).max()) <= 0.5 + 1e-6
    whole, moved = summed(every, contribution, grid), []
    for unit in range(len(every.records)):
        moved.append(np.linalg.norm(whole - summed(zeroed(every, unit), contribution, grid)))
    assert max(moved) <= contribution.norm * (1 + 1e-12)
    assert max(moved) == pytest.approx(contribution.norm, rel=3e-2)


def test_two_records_at_the_worst_angle_are_as_far_apart() -> None:
    """c = T^2 / 2, opposite targets; on turned axes, the weights off the diagonal take 1 % off."""
    angle = math.acos(0.125)
    z = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]]) * 3
    t = torch.tensor([[2.0], [-2.0]])
    first, second = (ContributionMoments(z[i : i + 1], t[i : i + 1]) for i in range(2))
    assert np.linalg.norm(summed(first) - summed(second)) == pytest.approx(TOUCHES.replaced, rel=0.01)


def test_a_record_along_an_axis_moves_them_as_far() -> None:
    """So the declared amount is no larger than it must be."""
    one = ContributionMoments(torch.tensor([[3.0, 0]]), torch.tensor([[2.0, 0]]))
    assert np.linalg.norm(summed(one)) == pytest.approx(TOUCHES.norm, rel=1e-5)
    # any other does almost
    one = ContributionMoments(torch.ones(1, 50), torch.ones(1, 3))
    assert np.linalg.norm(summed(one)) == pytest.approx(TOUCHES.norm, rel=2e-2)


def test_a_node_counts_its_records_at_either_end() -> None:
    """Node 9 has two records at each end, and three of the four are too many."""
    ends = torch.tensor([[9, 1], [9, 2], [3, 9], [4, 9]])
    records, wanted = torch.eye(4), torch.ones(4, 1)
    contribution = UnitContributionMoments(targets=1.0, records=4, second=True, readers=1)
    limited = summed(ContributionMoments(records, wanted, ends), contribution)
    alone = UnitContributionMoments(targets=1.0, records=4, second=True)
    first = summed(ContributionMoments(records[:1], wanted[:1]), alone)
    np.testing.assert_allclose(limited, first)


def test_rounded_sums_are_whole_steps() -> None:
    grid = 1.2345e-5
    steps = summed(parts(1), grid=grid) / grid
    assert np.abs(steps - np.rint(steps)).max() < 1e-6 and np.abs(steps).max() > 100


@pytest.mark.parametrize(("grid", "near"), [(0.0, 1e-6), (1e-7, 2e-2)])
def test_the_matrices_come_back(grid: float, near: float) -> None:
    one = parts(2)
    layout, matrix = moment_sums(one, TOUCHES, Unit.NODE, grid)
    second, classes = moments_of(layout.unpack(matrix, by_row=True), TOUCHES)
    z = one.records / one.records.norm(dim=1, keepdim=True).clamp(min=1)
    t = one.targets * (0.5 / one.targets.norm(dim=1, keepdim=True)).clamp(max=1)
    assert torch.allclose(second.float(), z.T @ z, atol=near)
    assert torch.allclose(classes.float(), z.T @ t, atol=near)


def test_class_sums_alone() -> None:
    alone = UnitContributionMoments(targets=0.5, records=16, second=False)
    layout, matrix = moment_sums(parts(3), alone, Unit.NODE)
    assert [name for name, _ in layout.fields] == ["classes"]
    assert moments_of(layout.unpack(matrix, by_row=True), alone)[0] is None
    assert alone.norm == 0.5 / 16


@pytest.mark.parametrize("policy", [local_dp(1.0, 2.0), distributed_dp(1.0, 2.0)])
def test_the_noise_is_of_the_declared_length_and_is_named(policy) -> None:
    bound = policy.bind([CHANNEL], NAMES)["moments"]
    (noise,) = (stage for stage in bound.stages if isinstance(stage, Gaussian))
    assert noise.l2_sensitivity == TOUCHES.norm and bound.unit is Unit.NODE
    honest = noise.honest
    assert noise.deviation(honest) == pytest.approx(2.0 * TOUCHES.norm)
    nothing = ContributionMoments(torch.zeros(0, 60), torch.zeros(0, 3))
    _, matrix = moment_sums(nothing, TOUCHES, Unit.NODE, noise.step)
    drawn = noise.apply(matrix, scope())
    drawn = drawn * noise.step if noise.by == "shares" else drawn
    spread = float(np.std(drawn))
    assert spread == pytest.approx(noise.deviation(1), rel=0.1)  # 2,010 draws: 6 standard errors


@pytest.mark.parametrize("multiplier", [1.0, 1.2, 1.5, 1.9, 2.0])
def test_the_server_s_noise_fits_at_every_multiplier(multiplier: float) -> None:
    """Its grid is a power of two, so it has up to twice as many steps."""
    bound = central_dp(1.0, multiplier).bind([CHANNEL], NAMES)["moments"]
    (noise,) = (stage for stage in bound.stages if isinstance(stage, Gaussian))
    assert noise.deviation(3) == pytest.approx(multiplier * TOUCHES.norm, rel=1e-3)
    assert noise.deviation(3) >= multiplier * TOUCHES.norm
    assert float(np.std(noise._draw((4000,)))) == pytest.approx(noise.sigma, rel=0.1)


def test_another_kind_of_answer_is_refused() -> None:
    bound = local_dp(1.0, 1.0).bind([CHANNEL], NAMES)["moments"]
    with pytest.raises(TypeError, match="ContributionMoments"):
        bound.check(Upload({"second": torch.zeros(1, 10)}))


@pytest.mark.parametrize(
    ("records", "targets"),
    [(torch.zeros(2), torch.zeros(2, 1)), (torch.zeros(2, 3), torch.zeros(1, 1))],
)
def test_records_and_targets_go_together(records: torch.Tensor, targets: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="one row a node in both"):
        ContributionMoments(records, targets).packed(Unit.NODE, True)


@pytest.mark.parametrize(("targets", "records"), [(0.0, 4), (math.inf, 4), (1.0, 0)])
def test_impossible_declarations_are_refused(targets: float, records: int) -> None:
    with pytest.raises(BadInput, match="give 1 record or more"):
        UnitContributionMoments(targets=targets, records=records, second=True)
