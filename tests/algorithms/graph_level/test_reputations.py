"""Rules of the reward baselines: lengths, reputations, removal, and who is given what."""

from __future__ import annotations

import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fairgraphfl.baselines import rewarded as reputations


def test_a_zero_gradient_stays_zero_and_others_have_one_length():
    scaled = reputations.of_equal_length(torch.tensor([[0.0, 0.0], [0.0, 8.0], [1e-9, 0.0]]), 2.0)
    assert torch.allclose(scaled, torch.tensor([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0]]))


def test_short_gradients_are_not_stretched():
    scaled = reputations.at_most_of_length(torch.tensor([[0.3, 0.0], [3.0, 4.0]]), 1.0)
    assert torch.allclose(scaled, torch.tensor([[0.3, 0.0], [0.6, 0.8]]))


def test_whoever_works_against_the_rest_is_removed_for_good():
    values, alignment = torch.full((4,), 0.25), torch.tensor([0.9, 0.9, 0.9, -0.9])
    for number in range(40):
        values = reputations.surviving_reputations(values, alignment, 0.05, number >= 10)
    assert values[3] == 0
    back = reputations.surviving_reputations(values, torch.ones(4), 0.05, True)
    assert back[3] == 0
    assert torch.isclose(back.sum(), torch.tensor(1.0).double())


def test_reputations_that_would_all_vanish_stay_as_they_were():
    values = torch.tensor([0.5, 0.5]).double()
    assert torch.equal(
        reputations.surviving_reputations(values, torch.tensor([-9.0, -10.0]), 0.5, True), values
    )
    assert reputations.moving_reputations(torch.zeros(3), -torch.ones(3), 0.05).tolist() == [1 / 3] * 3
    assert reputations.fractions_of(torch.zeros(3)).tolist() == [0, 0, 0]


def test_dw_is_federated_averaging_where_agents_have_one_size():
    """Everybody is given the whole mean in place of its own update, so all have the global model."""
    federation = small.federation("dw")
    sizes = [int(owner.train_mask.sum()) for owner in federation.owners.values()]
    run = sfg.train(small.algorithm("dw"), federation, "plaintext", rounds=2)
    shares = [size / sum(sizes) for size in sizes]
    assert list(run.algorithm.notes(run.state)["values"].values()) == pytest.approx(shares)
    assert len(set(sizes)) == 1
    mean = sfg.train(small.algorithm("gin-fedavg"), federation, "plaintext", rounds=2).state
    weights = run.algorithm.released(run.state)
    assert all(torch.allclose(mean[key], value, atol=1e-6) for key, value in weights.items())


def test_a_removed_agent_weighs_nothing_and_is_given_nothing():
    algorithm = sfg.algorithms.ALGORITHMS["cffl"]()
    values = torch.tensor([0.5, 0.5, 0.0]).double()
    assert algorithm.fractions(values).tolist() == [1, 1, 0]
