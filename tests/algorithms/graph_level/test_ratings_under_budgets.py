"""APFLGate on ratings under a rating's budget: what one rating moves, what stays at home, what is said."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import small
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.apflgate.ratings import ApflGateRatings
from secure_fedgraph.audits.conformance.rows import conformance_rows
from secure_fedgraph.core.channel import UnitContributionMoments
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.moments import moment_sums
from secure_fedgraph.core.upload import ContributionMoments
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.protocol.transcript import everything

GRIDS = (0.0, 1e-7)
SCHEMA = Schema(0, 0, kind="ratings")


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return small.federation("apflgate-ratings")


def sums(algorithm: ApflGateRatings, graph: Data, grid: float = 0.0) -> np.ndarray:
    sent = algorithm.moments(SimpleNamespace(graph=graph, schema=SCHEMA), {})
    return moment_sums(sent, algorithm.in_use[0].unit_contribution, Unit.EDGE, grid)[1]


def without(graph: Data, one: int) -> Data:
    kept, rest = torch.arange(len(graph.rating)) != one, graph.clone()
    rest.edge_index, rest.rating = graph.edge_index[:, kept], graph.rating[kept]
    rest.train_mask = graph.train_mask[kept]
    return rest


def otherwise(graph: Data, one: int) -> Data:
    rest = graph.clone()
    rest.rating = graph.rating.clone()
    rest.rating[one] = 5 - graph.rating[one]
    return rest


def moved(algorithm: ApflGateRatings, graph: Data, items: list[int], change=without) -> list[float]:
    """How far the sum moves by each of these ratings, in L2."""
    apart = []
    for grid in GRIDS:
        whole = sums(algorithm, graph, grid)
        apart += [float(np.linalg.norm(whole - sums(algorithm, change(graph, one), grid))) for one in items]
    return apart


@pytest.mark.parametrize("readers", [1, 2, 4])
def test_no_rating_moves_the_sum_further_than_its_channel_declares(federation, readers: int) -> None:
    """Every rating of every owner is taken out in turn, before anything is computed, and changed in turn."""
    algorithm = ApflGateRatings(readers=readers)
    declared = algorithm.in_use[0].unit_contribution
    for graph in federation.owners.values():
        every = list(range(len(graph.rating)))
        assert 0 < max(moved(algorithm, graph, every)) <= declared.zeroed
        assert 0 < max(moved(algorithm, graph, every, otherwise)) <= declared.replaced
        held_out = (~graph.train_mask).nonzero().flatten().tolist()
        assert set(moved(algorithm, graph, held_out)) == {0.0}


def test_the_door_bounds_how_many_records_read_one_link_whatever_they_become() -> None:
    """Records at the ends of the link that goes are drawn anew, with no regard to what they were."""
    bounds = {k: UnitContributionMoments(targets=0.5, records=16, second=True, readers=k) for k in (1, 2, 99)}
    furthest = dict.fromkeys(bounds, 0.0)
    for seed in range(300):
        draw = torch.Generator().manual_seed(seed)
        ends = torch.randint(0, 3, (14, 2), generator=draw) + torch.tensor([0, 3])
        gone = int(torch.randint(0, 14, (1,), generator=draw))
        records, targets = torch.randn(14, 2, generator=draw), torch.randn(14, 1, generator=draw)
        rest = torch.arange(14) != gone
        touched = (ends == ends[gone]).any(dim=1)[:, None]
        anew = torch.where(touched, torch.randn(14, 2, generator=draw), records)
        for k, declared in bounds.items():
            before = moment_sums(ContributionMoments(records, targets, ends), declared, Unit.EDGE)[1]
            left = ContributionMoments(anew[rest], targets[rest], ends[rest])
            apart = float(np.linalg.norm(before - moment_sums(left, declared, Unit.EDGE)[1]))
            assert apart <= declared.zeroed
            furthest[k] = max(furthest[k], apart)
    assert furthest[1] > bounds[1].zeroed / 2 and furthest[99] > bounds[1].zeroed


def test_the_door_takes_no_records_without_their_nodes() -> None:
    contribution = ApflGateRatings().in_use[0].unit_contribution
    for ends in (None, torch.zeros(3, 2), torch.zeros(2, 2, dtype=torch.long)):
        with pytest.raises(BadInput, match="two nodes of each of the 3 records"):
            moment_sums(ContributionMoments(torch.eye(3), torch.ones(3, 1), ends), contribution, Unit.EDGE)


@pytest.mark.slow
@pytest.mark.needs_data("ciao")
def test_real_ratings_and_those_of_the_busiest_users_and_products_keep_to_it() -> None:
    algorithm = ApflGateRatings()
    owners = sfg.federate("ciao", clients=28, partition="by_category", seed=0).owners.values()
    graph = max(owners, key=lambda one: len(one.rating))
    items = torch.randperm(len(graph.rating), generator=torch.Generator().manual_seed(0))[:20].tolist()
    train = graph.train_mask.nonzero().flatten()
    for side in graph.edge_index[:, train]:
        for hub in torch.bincount(side).topk(5).indices:  # its first rating is a record, its last one is read
            items += train[(side == hub).nonzero().flatten()[[0, -1]]].tolist()
    assert len(items) == 40
    assert 0 < max(moved(algorithm, graph, items)) <= algorithm.in_use[0].unit_contribution.zeroed


@pytest.mark.parametrize("algorithm", [sfg.Apfl, sfg.ApflGate])
def test_a_rating_s_budget_is_paid_once_whoever_else_knows_its_user(federation, algorithm) -> None:
    assert federation.holders > 1
    with pytest.warns(FormWarning, match="one sum under one noise"):
        run = sfg.train(algorithm(), federation, "distributed_dp", budget=sfg.Budget(4.0, 1e-5, Unit.EDGE))
    assert run.algorithm.name == "apflgate-ratings" and run.form == {"second_moments": "sent"}
    assert 3.9 < float(run.privacy()["edge"]["epsilon"]) <= 4
    assert {run.privacy()[unit]["epsilon"] for unit in ("node", "client")} == {"inf"}
    assert {charge.channel for charge in run.charges} == {"moments"}


def test_a_shared_model_of_noise_leaves_an_owner_what_it_is_alone(federation) -> None:
    algorithm = ApflGateRatings()
    noise = 50 * torch.randn(25, 5, generator=torch.Generator().manual_seed(3))
    for graph in federation.owners.values():
        personal, alone = algorithm.at_home(SimpleNamespace(graph=graph, schema=SCHEMA), noise)
        assert torch.equal(personal, alone)
        assert torch.equal(
            alone, algorithm.at_home(SimpleNamespace(graph=graph, schema=SCHEMA), 0 * noise)[1]
        )


def test_an_owner_of_few_ratings_takes_a_shared_model_that_is_right() -> None:
    """A user says the same of all products: one training rating each does not show it, many held out do."""
    draw = torch.Generator().manual_seed(0)

    def owner(users: int, each: int, training: int) -> Data:
        rating = torch.randint(0, 6, (users,), generator=draw).float().repeat_interleave(each)
        train = torch.arange(users * each) % each < training
        return Data(
            edge_index=torch.stack(
                [torch.arange(users).repeat_interleave(each), users + torch.arange(users * each)]
            ),
            rating=rating,
            train_mask=train,
            val_mask=~train,
            scale=torch.tensor([0.0, 5.0]),
            num_nodes=users * (each + 1),
        )

    algorithm, big = ApflGateRatings(), owner(300, 3, 2)
    z, t = algorithm.describe(big, SCHEMA), algorithm._wanted(big)
    shared = torch.linalg.solve(z.T @ z + 0.01 * torch.eye(25), z.T @ t)
    few = SimpleNamespace(graph=owner(6, 40, 1), schema=SCHEMA)
    personal, alone = algorithm.at_home(few, shared)
    errors = [
        float((algorithm.predict({"weights": one}, few.graph, SCHEMA) - few.graph.rating).abs().mean())
        for one in (personal, alone)
    ]
    assert errors[0] < errors[1]


def test_a_run_on_ratings_passes_the_checks_of_an_audit(federation: sfg.Federation) -> None:
    noise = sfg.policies.distributed_dp(1.0, 1.0)
    run = sfg.train(ApflGateRatings(), federation, noise, rounds=1, keep=everything)
    assert {row["check"] for row in conformance_rows(run) if row["outcome"] == "failed"} == set()
