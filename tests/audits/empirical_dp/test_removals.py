"""A node's real removal: nothing changes that is not charged, and a planned epsilon holds against it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training import private_training
from secure_fedgraph.audits.empirical_dp.removals import Removals
from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.dp_sgd import PrivateSteps

STEPS = PrivateSteps(10.0, rate=0.2, steps=5)


@cache
def synthetic() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=2, nodes=300, features=16, seed=0)


def removals(federation: sfg.Federation, steps: PrivateSteps = STEPS, **settings: Any) -> Removals:
    algorithm = sfg.FedSage(**{"fanout": (2,), "hidden": (8,), "places": 8, "crowd": 12, **settings})
    return Removals(federation, algorithm, replace(sfg.policies.plaintext(), steps=steps))


def by_the_whole_list(patch: pytest.MonkeyPatch) -> None:
    """Links are ranked by a seeded permutation of all of them, as they were."""

    def order(links: torch.Tensor) -> torch.Tensor:
        return torch.randperm(links.shape[1], generator=torch.Generator().manual_seed(0))

    real = private_training.capped_neighbours
    patch.setattr(
        private_training,
        "capped_neighbours",
        lambda links, nodes, most, priorities, *rest: real(links, nodes, most, order, *rest),
    )


@pytest.mark.parametrize("hops", [1, 2])
def test_no_removal_changes_more_than_is_charged(hops):
    at = removals(synthetic(), fanout=(2,) * hops, hidden=(8,) * hops)
    found = [at.of(node) for node in [*at.hubs(10), *range(20)]]
    assert sum(one.beyond for one in found) == 0
    assert max(one.changed for one in found) > 1


def test_an_order_of_the_whole_list_changes_more(monkeypatch):
    by_the_whole_list(monkeypatch)
    at = removals(synthetic())
    assert any(at.of(node).beyond for node in at.hubs(5))


def test_the_steps_of_a_client_hold_what_is_charged_for_a_removal():
    at = removals(synthetic())
    (hub,) = at.hubs(1)
    assert not at.audit(hub, 1e-5, trials=500).broken


def test_removals_that_nobody_counted_are_refuted(monkeypatch):
    by_the_whole_list(monkeypatch)
    at = removals(synthetic())
    (hub,) = at.hubs(1)
    assert at.audit(hub, 1e-5, trials=500).broken


def test_a_graph_with_a_larger_crowd_is_refused_before_anything_is_answered():
    with pytest.raises(BadInput, match=r"training\.crowd = 0"):
        removals(synthetic(), places=1, crowd=0)


@pytest.mark.slow
@pytest.mark.needs_data("planetoid/PubMed")
class TestPubmed:
    @cache  # noqa: B019 - one federation for the class
    def first_owner(self) -> Removals:
        # planned for epsilon 8: 100 steps at rate 0.05, 36 records a node
        steps = PrivateSteps(21.6, rate=0.05, steps=100)
        assert epsilon.epsilon(steps.events(36, "zero-out", 2), 1e-5).epsilon <= 8
        return removals(sfg.federate("pubmed", clients=3, seed=0), steps, places=25, crowd=10)

    def test_twenty_nodes_and_five_hubs(self):
        at = self.first_owner()
        some = torch.randperm(len(at.degrees), generator=torch.Generator().manual_seed(0))[:20].tolist()
        assert sum(at.of(node).beyond for node in [*some, *at.hubs(5)]) == 0

    def test_a_planned_epsilon_holds_against_a_hubs_removal(self):
        at = self.first_owner()
        worst = max(at.hubs(5), key=lambda node: at.of(node).changed)
        found = at.audit(worst, 1e-5, trials=10_000)
        assert not found.broken and found.lower.epsilon < 8
