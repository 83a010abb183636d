"""NeighGen's answers by partitioned minimum: what one node moves, what it is charged, what stays open."""

from __future__ import annotations

from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from parties import NAMES

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedsageplus import algorithm as fedsageplus
from secure_fedgraph.audits.empirical_dp.mechanisms import audit
from secure_fedgraph.audits.empirical_dp.worst_cases import pooled_parts
from secure_fedgraph.client import Client
from secure_fedgraph.core.channel import Channel, Reveal, UnitContribution
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection import binding
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.pooling import l2_sensitivity, pooled
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.core.upload import ContributionRows
from secure_fedgraph.models.neighgen.feedback import Feedback, blocks
from secure_fedgraph.models.parameters import parameters_of
from secure_fedgraph.policies import local_dp

QUERIES, CLIP, CANDIDATES = 6, 0.02, 5
SMALL: dict[str, Any] = {
    "generator_epochs": 3,
    "federated_epochs": 2,
    "exchange_batch": QUERIES,
    "minimum_batch": 4,
    "generator_hidden": (8, 16),
    "encoder": (8, 8),
    "hidden_share": 0.4,
    "feedback_minimum": "partitioned",
    "feedback_clip": CLIP,
}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=90, features=20, mean_degree=8.0, seed=0)


def enlisted(federation: sfg.Federation, **settings: Any) -> tuple[sfg.FedSagePlus, list[Client]]:
    algorithm = sfg.FedSagePlus(**{**SMALL, **settings})
    bound = sfg.policies.plaintext().bind(algorithm.in_use, federation.names)
    return algorithm, federation.make_clients(algorithm, bound, "run-1", Ledger(), seed=0)


class Asked:
    """One owner's offer and another's answers to it, on its own graph or one with a node zeroed out."""

    def __init__(self, federation: sfg.Federation, **settings: Any) -> None:
        self.algorithm, (asker, self.client, _) = enlisted(federation, **settings)
        self.offer = self.algorithm.offer(asker, {}).values
        self.channel = next(c for c in self.algorithm.in_use if c.name == "feedback")
        self.graph = self.client.graph
        order = torch.arange(self.graph.num_nodes)
        self.client.secret_order = lambda size: order[:size]  # type: ignore[method-assign]

    def answer(self, zeroed: int | None = None) -> ContributionRows:
        self.client.graph = self.graph.clone()
        self.client.memory["answered"] = 0  # the same noise and dropout again
        if zeroed is not None:
            self.client.graph.x[zeroed] = 0.0
        return self.algorithm.feedback(self.client, {"generator": dict(self.offer)})

    def sent(self, zeroed: int | None = None) -> np.ndarray:
        assert self.channel.unit_contribution is not None
        return pooled(self.answer(zeroed), self.channel.unit_contribution, Unit.NODE)[1]

    def farthest(self) -> float:
        whole = self.sent()
        return max(float(np.linalg.norm(whole - self.sent(v))) for v in range(self.graph.num_nodes))


@pytest.mark.parametrize("feedback", ["parameters", "outputs"])
def test_no_node_moves_an_answer_by_more_than_two_clips_over_q(
    federation: sfg.Federation, feedback: str
) -> None:
    asked = Asked(federation, feedback=feedback)
    claim = 2 * CLIP / QUERIES
    assert l2_sensitivity(asked.channel.unit_contribution, "zero-out") == pytest.approx(claim)  # type: ignore[arg-type]
    assert 0 < asked.farthest() <= claim
    # a node moves one query's gradient
    one, other = (asked.answer(v) for v in (None, 3))
    changed = [
        q
        for q in range(QUERIES)
        if any(not torch.equal(one.values[k][q], other.values[k][q]) for k in one.values)
    ]
    assert changed in ([], [3])


def test_with_the_partition_ignored_one_node_moves_more(
    federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = Asked(federation, feedback="outputs")
    # where nothing that is generated is near any node: one that is zeroed is the nearest of all
    everybody.graph.x[:] = 9.0 * torch.sign(everybody.graph.x - 0.5)
    assert everybody.farthest() <= 2 * CLIP / QUERIES
    monkeypatch.setattr(fedsageplus, "blocks", lambda order, queries: order.repeat(queries, 1))
    assert everybody.farthest() > 1.2 * 2 * CLIP / QUERIES


def test_gradients_of_queries_sum_to_the_gradient() -> None:
    shape = {"latent": 4, "features": 3, "candidates": 2, "hidden": (5, 6)}
    side = Feedback(**shape)  # type: ignore[arg-type]
    random = torch.Generator().manual_seed(0)
    from secure_fedgraph.models.neighgen.model import FeatureGenerator
    from secure_fedgraph.models.parameters import glorot

    fgen = FeatureGenerator(**shape)  # type: ignore[arg-type]
    glorot(fgen, 1)
    z, counts = torch.randn(4, 4, generator=random), torch.tensor([2, 1, 2, 1])
    targets, near = torch.randn(7, 3, generator=random), blocks(torch.randperm(7, generator=random), 4)

    def seeded() -> torch.Generator:
        return torch.Generator().manual_seed(3)

    each = side.query_gradients(parameters_of(fgen), z, counts, targets, 0.5, seeded(), near)
    summed = side.generator_gradient(parameters_of(fgen), z, counts, targets, 0.5, seeded(), near)
    assert list(each) == list(summed)
    for name, gradient in each.items():
        assert gradient.shape == (4, *summed[name].shape)
        torch.testing.assert_close(gradient.sum(0), summed[name])


def test_every_node_is_dealt_to_one_query() -> None:
    for nodes, queries in ((7, 3), (3, 5), (6, 6)):
        found = blocks(torch.randperm(nodes), queries)
        assert sorted(found[found >= 0].tolist()) == list(range(nodes))
        counts = (found >= 0).sum(1)
        assert int(counts.max() - counts.min()) <= 1


@pytest.mark.parametrize("feedback", ["parameters", "outputs"])
@pytest.mark.parametrize("policy", ["plaintext", "masked", "local_dp"])
def test_it_trains_and_answers_are_charged_to_the_node(
    federation: sfg.Federation, feedback: str, policy: str
) -> None:
    made = sfg.policies.local_dp(1.0, 3.0) if policy == "local_dp" else getattr(sfg.policies, policy)()
    run = sfg.train(sfg.FedSagePlus(**{**SMALL, "feedback": feedback}), federation, made, rounds=1, seed=0)
    assert np.isfinite(run.accuracy["global"])  # under noise a model may be right nowhere
    charges = [c for c in run.charges if c.channel == "feedback"]
    assert {c.unit for c in charges} == {"node"}
    assert all(bool(c.releases) == (policy == "local_dp") for c in charges)
    assert np.isfinite(float(run.privacy("node")["epsilon"])) == (policy == "local_dp")


def test_under_masks_the_partitioned_sum_trains_the_same_models(
    federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "secret_order", lambda self, size: torch.arange(size))
    one, other = (
        sfg.train(sfg.FedSagePlus(**SMALL), federation, policy, rounds=1, seed=0)
        for policy in (sfg.policies.plaintext(), sfg.policies.masked())
    )
    assert max(float((one.state[k] - other.state[k]).abs().max()) for k in one.state) < 1e-3


def test_the_whole_minimum_is_as_it_was(federation: sfg.Federation) -> None:
    channel = next(c for c in sfg.FedSagePlus().in_use if c.name == "feedback")
    assert channel == sfg.FedSagePlus.FEEDBACK
    assert channel.unit_contribution is None


def test_what_is_refused(federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="partitioned deals nodes out"):
        sfg.FedSagePlus(feedback_minimum="partitioned", cross_target="random_neighbourhood")
    asked = Asked(federation)
    short = {k: v[:5] if k in ("z", "counts") else v for k, v in asked.offer.items()}
    with pytest.raises(HostileMessage, match="asked about 5 nodes, and 6 are agreed on"):
        asked.algorithm.feedback(asked.client, {"generator": short})
    monkeypatch.setattr(fedsageplus, "MOST", 10)
    with pytest.raises(BadInput, match=r"set training\.feedback=outputs"):
        asked.answer()


# --- the mechanism

DELTA, EPSILON = 1e-5, 4.0
MULTIPLIER = float(dp.get_sigma_gaussian(EPSILON, DELTA))
ANSWERS = Channel(
    "answers", Reveal.SUM, Unit.NODE, unit_contribution=UnitContribution(1, 0.3, removal_may_replace=True)
)


def bound() -> Bound:
    return local_dp(1.0, MULTIPLIER).bind((ANSWERS,), NAMES)["answers"]


def test_the_claim_holds_and_is_tight() -> None:
    found = audit(bound(), pooled_parts(bound()), "server", trials=30_000)
    assert found.claim == pytest.approx(EPSILON, abs=1e-3)
    assert not found.broken
    assert found.reached >= 0.75


def test_a_part_that_turns_and_is_counted_as_one_that_vanishes_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binding, "l2_sensitivity", lambda contribution, relation: contribution.norm)
    found = audit(bound(), pooled_parts(bound()), "server", trials=20_000)
    assert found.broken
