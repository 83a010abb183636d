"""What a client keeps of an optimiser between rounds: finite, a copy, and torch's own."""

from __future__ import annotations

import copy

import pytest
import torch

from secure_fedgraph.algorithms.training.optimizers import moments, restore
from secure_fedgraph.models.finite import SGD, Adam


def _stepped(steps: int = 3) -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = Adam(model.parameters(), lr=0.1, fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def test_a_restored_optimiser_goes_on_bit_for_bit_as_torchs_own_would():
    model, optimizer = _stepped()
    kept = copy.deepcopy(moments(optimizer))
    assert kept.keys() == {"0", "1"}
    again = [copy.deepcopy(model) for _ in range(2)]
    ours, torchs = (Adam(one.parameters(), lr=0.1, fused=True) for one in again)
    restore(ours, kept)
    torchs.load_state_dict(optimizer.state_dict())
    for one, its in zip(again, (ours, torchs), strict=True):
        one(torch.full((1, 3), 2.0)).sum().backward()
        its.step()
    for first, second in zip(*(one.parameters() for one in again), strict=True):
        assert torch.equal(first, second)


def test_steps_after_a_restore_leave_the_memory_as_it_was():
    model, optimizer = _stepped()
    kept = moments(optimizer)
    before = copy.deepcopy(kept)
    fresh = Adam(model.parameters(), lr=0.1, fused=True)
    restore(fresh, kept)
    model(torch.ones(1, 3)).sum().backward()
    fresh.step()
    for number, slots in before.items():
        assert all(torch.equal(kept[number][name], slot) for name, slot in slots.items())


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_an_entry_that_is_not_finite_in_one_slot_is_kept_as_zero_in_all(bad):
    model, optimizer = _stepped()
    optimizer.state[model.weight]["exp_avg_sq"][0, 1] = bad
    kept = moments(optimizer)["0"]
    assert kept["exp_avg"][0, 1] == kept["exp_avg_sq"][0, 1] == 0
    assert int((kept["exp_avg"] != 0).sum()) == 5


def test_large_finite_moments_stay():
    model, optimizer = _stepped()
    optimizer.state[model.weight]["exp_avg_sq"][0, 1] = 3e38  # its square is infinite
    assert float(moments(optimizer)["0"]["exp_avg_sq"][0, 1]) == pytest.approx(3e38)


def test_an_optimiser_without_state_keeps_nothing():
    model = torch.nn.Linear(3, 2)
    optimizer = SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert all(not slots for slots in moments(optimizer).values())
