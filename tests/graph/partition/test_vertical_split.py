"""The vertical split: columns once, the same nodes, own links, no label that is not for training."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.partition.registry import PARTITIONS
from secure_fedgraph.graph.partition.vertical import class_split, vertical
from secure_fedgraph.graph.sample.links import undirected_links


@pytest.fixture(scope="module")
def graph() -> Data:
    made = citation(nodes=200, features=20, classes=4, seed=0)
    made.x = torch.arange(200 * 20, dtype=torch.float32).view(200, 20)  # every value tells where it was
    return made


def test_every_column_is_one_owners(graph):
    partition_result = vertical(graph, 3, seed=0)
    assert [owner.x.shape for owner in partition_result.owners] == [(200, 7), (200, 7), (200, 6)]
    first_row = torch.cat([owner.x[0] for owner in partition_result.owners])
    assert sorted(first_row.tolist()) == list(range(20))
    assert first_row.tolist() != list(range(20))  # permuted before it is cut
    assert all(torch.equal(owner.x[5], owner.x[0] + 100) for owner in partition_result.owners)


def test_each_owner_has_its_own_eighty_percent_of_the_links(graph):
    partition_result = vertical(graph, 3, seed=0)
    whole = {tuple(link) for link in undirected_links(graph.edge_index).T.tolist()}
    found = []
    for owner in partition_result.owners:
        links = {tuple(link) for link in undirected_links(owner.edge_index).T.tolist()}
        assert len(links) == round(0.8 * len(whole))
        assert links < whole
        assert owner.edge_index.shape[1] == 2 * len(links)  # both directions
        found.append(links)
    assert found[0] != found[1]
    assert partition_result.facts["links"] == [round(0.8 * len(whole))] * 3


def test_all_links_under_a_name_of_its_own(graph):
    deal = PARTITIONS["vertical_all_links"].split
    assert isinstance(deal, partial)
    partition_result = deal(graph, 2, 0)
    assert partition_result.facts["links"] == [partition_result.facts["all_links"]] * 2
    assert set(PARTITIONS["vertical"].settings) == set(PARTITIONS["vertical_all_links"].settings)


def test_no_owner_knows_a_label_that_is_not_for_training(graph):
    partition_result = vertical(graph, 3, seed=0)
    for owner in partition_result.owners:
        assert torch.equal(owner.y >= 0, owner.train_mask)
        assert torch.equal(owner.y[owner.train_mask], graph.y[owner.train_mask])
        assert not owner.val_mask.any()
        assert not owner.test_mask.any()
    assert set(partition_result.test_set.inputs.to_dict()) == {"num_nodes"}
    assert partition_result.test_set.inputs.num_nodes == 200


def test_labels_at_one_owner(graph):
    first, *others = vertical(graph, 3, seed=0, labels="one").owners
    assert torch.equal(first.y >= 0, first.train_mask)
    assert all((owner.y == -1).all() and torch.equal(owner.train_mask, first.train_mask) for owner in others)


def test_training_validation_and_test_do_not_meet(graph):
    partition_result = vertical(graph, 2, seed=0)
    train, val, test = (
        next(iter(nodes.values()))
        for nodes in (
            partition_result.test_set.trainings,
            partition_result.test_set.validations,
            partition_result.test_set.tests,
        )
    )
    together = torch.cat([train, val, test])
    assert len(together) == len(together.unique()) == 200
    # 15 % of 200 over 4 classes; a third of the rest validates
    assert torch.bincount(graph.y[train]).tolist() == [8, 8, 8, 8]
    assert len(val) == (200 - 32) // 3


@pytest.mark.parametrize(
    ("nodes", "classes", "per_class"), [(2708, 7, 60), (3327, 6, 84), (19717, 3, 320), (1000, 5, 30)]
)
def test_the_papers_sizes(nodes, classes, per_class):
    y = torch.arange(nodes) % classes
    graph = Data(x=torch.zeros(nodes, 4), y=y, edge_index=torch.tensor([[0, 1], [1, 0]]))
    facts = vertical(graph, 2, seed=0).facts
    rest = nodes - classes * per_class
    assert facts["training"] == classes * per_class
    assert facts["validation"] == min(500, rest // 3)
    assert facts["test"] == min(1000, rest - facts["validation"])


def test_sizes_by_hand_and_never_more_than_half_a_class(graph):
    facts = vertical(graph, 2, seed=0, train_per_class=3, validation=20, test=30).facts
    assert (facts["training"], facts["validation"], facts["test"]) == (12, 20, 30)
    assert vertical(graph, 2, seed=0, train_per_class=1000).facts["training"] == 4 * 25


def test_a_rare_class_is_in_validation_and_test_as_often_as_in_the_rest() -> None:
    """Training takes as many of each class, so what it leaves must be drawn without regard to its order."""
    labels = torch.tensor([0] * 200 + [1] * 800 + [2] * 1000)
    left = (200 - 80) / (2000 - 3 * 80)
    shares = torch.tensor(
        [
            [
                float((labels[mask] == 0).float().mean())
                for mask in class_split(labels, seed, 80, 300, 300)[1:]
            ]
            for seed in range(30)
        ]
    )
    assert (shares.mean(0) - left).abs().max() < 0.015  # five deviations of a mean of 9,000 nodes


def test_a_seed_is_a_split(graph):
    one, same, other = (vertical(graph, 3, seed=s) for s in (0, 0, 1))
    for key in ("x", "edge_index", "train_mask"):
        assert torch.equal(one.owners[1][key], same.owners[1][key])
        assert not torch.equal(one.owners[1][key], other.owners[1][key])


def test_the_pool_is_everything(graph):
    pool = vertical(graph, 3, seed=0).pool
    assert pool is not None
    assert torch.equal(pool.x, graph.x)
    assert len(undirected_links(pool.edge_index).T) == len(undirected_links(graph.edge_index).T)
    assert torch.equal(pool.y >= 0, pool.train_mask)


@pytest.mark.parametrize(
    ("clients", "settings", "words"),
    [
        (21, {}, "clients = 21: a vertical split of 20 feature columns gives an owner none; give 1 to 20"),
        (0, {}, "give 1 to 20"),
    ],
)
def test_what_cannot_be_is_refused(graph, clients, settings, words):
    with pytest.raises(BadInput, match=words):
        vertical(graph, clients, 0, **settings)


def test_no_owner_gets_an_empty_block(graph):
    for clients in (6, 7, 11, 13, 19, 20):  # blocks of ceil(20 / 7) = 3 would leave none to the last of 8
        blocks = vertical(graph, clients, seed=0).facts["columns"]
        assert sum(blocks) == 20
        assert min(blocks) >= 1
        assert max(blocks) <= -(-20 // clients)


def test_a_federation_by_columns():
    federation = sfg.federate("synthetic-citation", 3, "vertical", nodes=60, features=16)
    assert federation.facts["partition"]["name"] == "vertical"
    assert federation.pooled().names == ("pool",)
