"""A set of graphs dealt to owners of uneven sizes: every graph once, the exam named by owner."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.molecules import generate
from secure_fedgraph.graph.partition.dirichlet import dirichlet
from secure_fedgraph.graph.sample.packing import select_graphs


@pytest.fixture(scope="module")
def dataset():
    return generate(graphs=203, seed=3)


@pytest.fixture(scope="module")
def partition_result(dataset):
    return dirichlet(dataset, 5, 0)


def test_every_graph_has_one_owner_and_one_place(dataset, partition_result):
    held = torch.cat([owner.graph_id for owner in partition_result.owners])
    assert sorted(held.tolist()) == list(range(203))
    counts = torch.zeros(3, dtype=torch.long)
    for owner in partition_result.owners:
        masks = torch.stack([owner.train_mask, owner.val_mask, owner.test_mask])
        assert masks.sum(0).eq(1).all()
        counts += masks.sum(1)
    assert counts.tolist() == [162, 20, 21]  # 80/10/10 of all, not of each


def test_an_owner_holds_its_own_graphs(dataset, partition_result):
    owner = partition_result.owners[2]
    for place, number in enumerate(owner.graph_id.tolist()):
        one, given = select_graphs(owner, torch.tensor([place])), dataset.graphs[number]
        assert one.x.equal(given.x) and one.edge_index.equal(given.edge_index)
        assert one.edge_attr.equal(given.edge_attr) and one.y.equal(given.y)


def test_the_exam_is_the_owners_held_out_graphs_without_their_classes(partition_result):
    test_set = partition_result.test_set
    assert test_set.inputs.get("y") is None and not test_set.own_tests
    assert list(test_set.tests) == [f"owner-{i}" for i in range(5)] == list(test_set.validations)
    for name, owner in zip(test_set.tests, partition_result.owners, strict=True):
        for asked, mask in (
            (test_set.tests[name], owner.test_mask),
            (test_set.validations[name], owner.val_mask),
        ):
            assert len(asked) == int(mask.sum())
            assert test_set.labels[asked].equal(owner.y[mask])
            if len(asked):
                own = select_graphs(owner, mask.nonzero().flatten())
                shown = some_x(test_set.inputs, asked)
                assert own.x.equal(shown)
    every = torch.cat([*test_set.tests.values(), *test_set.validations.values()])
    assert sorted(every.tolist()) == list(range(41)) == list(range(len(test_set.labels)))


def some_x(inputs, graphs):
    return torch.cat([inputs.x[inputs.graph == g] for g in graphs.tolist()])


def test_sizes_are_uneven_and_nobody_is_left_without(dataset):
    for seed in range(20):
        sizes = dirichlet(dataset, 8, seed).facts["training"]
        assert min(sizes) >= 8 and sum(sizes) == 162
    even = dirichlet(dataset, 8, 0, concentration=1e4).facts["training"]
    uneven = dirichlet(dataset, 8, 0, concentration=0.1).facts["training"]
    assert max(even) - min(even) <= 3
    assert max(uneven) > 60


def test_sizes_follow_the_dirichlet_distribution(dataset):
    """Mean and variance of the first owner's share: 1/M and (1/M)(1 - 1/M)/(M a + 1)."""
    shares = np.array(
        [(dirichlet(dataset, 4, seed, least=1).facts["training"][0] - 1) / 158 for seed in range(60)]
    )
    assert shares.mean() == pytest.approx(0.25, abs=4 * (0.0625 / 60) ** 0.5)
    assert shares.var() == pytest.approx(0.25 * 0.75 / 3, rel=0.5)


def test_the_same_seed_gives_the_same_and_another_another(dataset, partition_result):
    assert dirichlet(dataset, 5, 0).facts == partition_result.facts
    assert dirichlet(dataset, 5, 1).facts["sizes"] != partition_result.facts["sizes"]


def test_it_can_be_pooled_again(dataset, partition_result):
    assert len(partition_result.pool.y) == 203 and int(partition_result.pool.train_mask.sum()) == 162


@pytest.mark.parametrize(
    ("clients", "settings", "sentence"),
    [
        (40, {}, "40 owners of 8 training graphs or more need 320, and 'synthetic-molecules' has 162"),
    ],
)
def test_refused(dataset, clients, settings, sentence):
    with pytest.raises(BadInput, match=sentence):
        dirichlet(dataset, clients, 0, **settings)


def test_by_name_with_what_everybody_knows():
    federation = sfg.federate(
        "synthetic-molecules", clients=2, partition="dirichlet", split={"least": 3}, graphs=30
    )
    assert federation.schema.kind == "graph"
    assert federation.schema.atoms[0] == 119 and federation.schema.bonds == (22, 6, 2)
    assert federation.facts["partition"]["name"] == "dirichlet"
    with pytest.raises(BadInput, match="'synthetic-citation'"):
        sfg.federate("synthetic-citation", clients=2, partition="dirichlet", nodes=60, features=16)
