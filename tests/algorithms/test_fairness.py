"""Values, rewards and payoffs with literal numbers, their identities, and what guards them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.algorithms.fairgraphfl import fairness
from secure_fedgraph.core.errors import BadInput

numbers = st.floats(-1, 1, allow_nan=False)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


class TestValues:
    def test_by_hand(self):
        # .95 * (.5, .5) + .05 * ((1, -1) + 2 * (1, .5)) = (.625, .475), sum 1.1
        found = fairness.next_values(tensor(0.5, 0.5), tensor(1, -1), tensor(1, 0.5), 0.05, 2.0)
        assert found.tolist() == pytest.approx([0.625 / 1.1, 0.475 / 1.1])

    @given(st.lists(st.tuples(numbers, st.floats(0, 1)), min_size=2, max_size=10))
    def test_they_sum_to_one(self, agents):
        alignment, diversity = torch.tensor(agents, dtype=torch.float64).T
        values = torch.full((len(agents),), 1 / len(agents), dtype=torch.float64)
        for _ in range(3):
            values = fairness.next_values(values, alignment, diversity)
            assert float(values.sum()) == pytest.approx(1)

    def test_a_sum_that_vanishes_leaves_them_as_they_were(self):
        # 39 agents at -1 and no diversity: .95 - .05 * 39 < 0
        before = torch.full((39,), 1 / 39, dtype=torch.float64)
        found = fairness.next_values(before, -torch.ones(39), torch.zeros(39))
        assert torch.equal(found, before)
        assert torch.equal(
            fairness.next_values(before, -torch.ones(39) * 19 / 39, torch.zeros(39)), before
        )  # exactly zero but for rounding

    def test_an_agent_against_the_rest_with_nothing_of_its_own_ends_below_zero(self):
        values = torch.full((3,), 1 / 3, dtype=torch.float64)
        for _ in range(60):
            values = fairness.next_values(values, tensor(1, 1, -1), tensor(0.5, 0.5, 0.0))
        assert float(values[2]) < 0
        assert float(values.sum()) == pytest.approx(1)

    def test_diversity_is_the_share_of_all_motifs(self):
        present = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0]], dtype=torch.bool)
        assert fairness.diversity(present).tolist() == pytest.approx([2 / 3, 2 / 3])
        assert fairness.diversity(torch.zeros(2, 3, dtype=torch.bool)).tolist() == [1, 1]
        assert fairness.diversity(torch.zeros(2, 0, dtype=torch.bool)).tolist() == [1, 1]

    def test_alignment(self):
        gradients = torch.tensor([[3.0, 4.0], [-3.0, -4.0], [0.0, 0.0], [4.0, -3.0]])
        found = fairness.cosines(gradients, torch.tensor([6.0, 8.0])).tolist()
        assert found == pytest.approx([1, -1, 0, 0])
        assert fairness.cosines(gradients, torch.zeros(2)).tolist() == [0, 0, 0, 0]

    def test_weights(self):
        assert fairness.shares(tensor(0.5, -0.2, 0.7)).tolist() == pytest.approx([5 / 12, 0, 7 / 12])
        assert fairness.shares(tensor(-1, 0)).tolist() == [0, 0]


class TestRewards:
    def test_fractions_by_hand(self):
        found = fairness.fractions(tensor(0.1, 0.2, -0.1, 0), 2.0)
        assert found.tolist() == pytest.approx([math.tanh(0.2) / math.tanh(0.4), 1, 0, 0])

    def test_the_hyper_parameter_is_nearly_inert_as_printed_and_not_where_values_are_scaled(self):
        values = tensor(0.1, 0.2, 0.7)
        ratio = {b: float(fairness.fractions(values[:2], b)[0]) for b in (0.5, 2.0)}
        assert ratio == {0.5: pytest.approx(0.501, abs=1e-3), 2.0: pytest.approx(0.519, abs=1e-3)}
        few = torch.cat([values, torch.zeros(17, dtype=torch.float64)])
        assert float(fairness.fractions(few, 2.0, "Kr")[0]) > 0.99

    def test_beta_to_infinity_gives_all_to_everybody_of_positive_value(self):
        for beta in (1e9, math.inf):
            found = fairness.fractions(tensor(1e-3, 0.9, -0.1), beta)
            assert found.tolist() == [1, 1, 0]
            assert fairness.largest(torch.randn(17), float(found[0])).all()

    def test_nobody_positive_gets_anything(self):
        assert fairness.fractions(tensor(-0.5, 0), 1.0).tolist() == [0, 0]

    @given(st.lists(numbers, min_size=1, max_size=30), st.floats(0, 1))
    def test_the_largest_are_kept_and_no_more(self, components, fraction):
        vector = torch.tensor(components, dtype=torch.float64)
        mask = fairness.largest(vector, fraction)
        assert int(mask.sum()) == math.floor(fraction * len(vector) + 1e-9)
        if 0 < int(mask.sum()) < len(vector):
            assert float(vector[mask].abs().min()) >= float(vector[~mask].abs().max())


class TestPayoffs:
    def test_by_hand(self):
        # means before: .4, .6; compensation: max(.5 - .4, 0), 0; psi = .6, .5; sum 1.1
        earlier = torch.tensor([[0.5, 0.5], [0.3, 0.7]])
        found = fairness.payoffs(tensor(0.5, 0.5), earlier, budget=2.2)
        assert found.tolist() == pytest.approx([1.2, 1.0], rel=1e-6)

    def test_a_negative_value_pays_and_is_not_compensated(self):
        # it has risen from -.5 to -.1, and is still paid -.1 of 1 + .1 (the other fell)
        found = fairness.payoffs(tensor(1.1, -0.1), tensor(1.5, -0.5)[None], budget=1.0)
        assert found.tolist() == pytest.approx([1.1, -0.1])

    @given(
        st.lists(st.floats(-0.2, 1), min_size=2, max_size=8).filter(lambda r: sum(r) > 0.1),
        st.floats(0, 100),
    )
    def test_they_add_up_to_the_budget(self, raw, budget):
        values = torch.tensor(raw, dtype=torch.float64) / sum(raw)
        earlier = torch.full((3, len(raw)), 1 / len(raw), dtype=torch.float64)
        assert float(fairness.payoffs(values, earlier, budget).sum()) == pytest.approx(budget, abs=1e-9)

    @pytest.mark.parametrize("budget", [-1.0, math.nan, math.inf])
    def test_a_budget_that_is_none(self, budget):
        with pytest.raises(BadInput, match="budget"):
            fairness.payoffs(tensor(0.3, 0.7), tensor(0.5, 0.5)[None], budget)

    def test_values_that_add_up_to_nothing(self):
        with pytest.raises(BadInput, match="add up to"):
            fairness.payoffs(tensor(0.5, -0.5), tensor(0.5, 0.5)[None])


class TestModelGradientFairness:
    def test_by_hand(self):
        assert fairness.correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)

    def test_where_it_is_not_defined(self):
        assert math.isnan(fairness.correlation([], [])) and math.isnan(fairness.correlation([1, 2], [1, 2]))
        assert math.isnan(fairness.correlation([1, 1, 1], [1, 2, 3]))
        assert fairness.correlation([1, 2, 3, math.nan], [2, 4, 6, 1]) == pytest.approx(1)
