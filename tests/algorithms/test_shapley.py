"""Shapley's axioms on small games, and sampled orders against the exact values."""

from __future__ import annotations

import math

import pytest
import torch

from secure_fedgraph.algorithms.fairgraphfl.fairness import cosines, gradient_shapley
from secure_fedgraph.algorithms.fairgraphfl.shapley import MOST, exact, sampled
from secure_fedgraph.core.errors import BadInput

GLOVES = (0, 0, 1)
"""Two left gloves and a right one: a pair is worth 1. The textbook's values are 1/6, 1/6, 2/3."""


def gloves(who):
    return float(len({GLOVES[i] for i in who}) == 2)


def random_game(players: int, seed: int):
    worth = torch.rand(2**players, generator=torch.Generator().manual_seed(seed)).tolist()
    worth[0] = 0.0
    return lambda who: worth[sum(1 << i for i in who)]


def test_gloves():
    assert exact(gloves, 3).tolist() == pytest.approx([1 / 6, 1 / 6, 2 / 3])


def test_the_airport():
    # a runway of the largest member's length; lengths 1, 2, 4: each stretch is shared by those who need it
    assert exact(lambda who: max([(1, 2, 4)[i] for i in who], default=0), 3).tolist() == pytest.approx(
        [1 / 3, 1 / 3 + 1 / 2, 1 / 3 + 1 / 2 + 2]
    )


@pytest.mark.parametrize("seed", range(4))
def test_axioms(seed):
    players = 5
    one, two = random_game(players, seed), random_game(players, seed + 100)
    found, other = exact(one, players), exact(two, players)
    # efficiency
    assert float(found.sum()) == pytest.approx(one(tuple(range(players))))
    # additivity
    both = exact(lambda who: 2 * one(who) + 3 * two(who), players)
    assert torch.allclose(both, 2 * found + 3 * other)
    # null player: the last one adds nothing to any coalition
    without = exact(lambda who: one(tuple(i for i in who if i != players - 1)), players)
    assert float(without[-1]) == pytest.approx(0, abs=1e-12)
    # symmetry: 0 and 1 count alike where only their number matters
    alike = exact(
        lambda who: one((*range(len([i for i in who if i < 2])), *(i for i in who if i > 1))), players
    )
    assert float(alike[0]) == pytest.approx(float(alike[1]))


def test_renaming_players_renames_values():
    game = random_game(4, 7)
    order = [2, 0, 3, 1]
    renamed = exact(lambda who: game(tuple(sorted(order[i] for i in who))), 4)
    assert torch.allclose(renamed, exact(game, 4)[order])


def test_sampled_orders_come_near_and_add_up():
    game, players = random_game(6, 3), 6
    found, error = sampled(game, players, 400, torch.Generator().manual_seed(0))
    assert float(found.sum()) == pytest.approx(game(tuple(range(players))))
    assert bool(((found - exact(game, players)).abs() < 5 * error + 1e-12).all())
    assert float(error.max()) < 0.05


def test_one_pair_of_orders_has_no_error():
    found, error = sampled(gloves, 3, 1, torch.Generator().manual_seed(0))
    assert float(found.sum()) == pytest.approx(1)
    assert all(math.isnan(e) for e in error.tolist())


def test_out_of_range():
    with pytest.raises(BadInput, match="sample orders"):
        exact(gloves, MOST + 1)
    with pytest.raises(BadInput, match="1 or more"):
        sampled(gloves, 3, 0, torch.Generator())


class TestGradientGame:
    def test_it_is_the_games_own_value(self):
        gradients = torch.randn(4, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        whole = gradients.sum(0)

        def utility(who):
            part = gradients[list(who)].sum(0)
            return float(torch.cosine_similarity(part, whole, dim=0)) if who else 0.0

        assert torch.allclose(gradient_shapley(gradients), exact(utility, 4))

    def test_equal_gradients_share_equally(self):
        assert gradient_shapley(torch.ones(5, 3)).tolist() == pytest.approx([1 / 5] * 5)

    @pytest.mark.parametrize("seed", range(3))
    def test_eq_9_approximates_it_for_gradients_of_one_length(self, seed):
        generator = torch.Generator().manual_seed(seed)
        common, noise = torch.randn(50, generator=generator), torch.linspace(0.2, 3, 6)[:, None]
        gradients = common + noise * torch.randn(6, 50, generator=generator)
        lengths = gradients.norm(dim=1, keepdim=True)
        for drawn, least in ((gradients / lengths, 0.99), (gradients, 0.5)):
            both = torch.stack([gradient_shapley(drawn), cosines(drawn, drawn.sum(0))])
            assert float(torch.corrcoef(both)[0, 1]) > least
