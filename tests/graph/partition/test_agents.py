"""Sets of graphs dealt evenly, global and local tests, and links that are rewired."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.partition.dirichlet import file_order_agents, random_agents, rewired
from secure_fedgraph.graph.partition.registry import split_data
from secure_fedgraph.graph.partition.result import EVERYBODY


def dataset(graphs: int = 50, nodes: int = 8) -> GraphSetDataset:
    """The second half of the file has another class; a graph's only feature is its number."""
    found = []
    for i in range(graphs):
        ring = torch.arange(nodes)
        once = torch.stack([ring, (ring + 1) % nodes])
        y = torch.tensor([int(i >= graphs // 2)])
        found.append(
            Data(x=torch.full((nodes, 1), float(i)), edge_index=torch.cat([once, once.flip(0)], 1), y=y)
        )
    return GraphSetDataset("fifty", found, "made here", "", 1, 2)


def numbers(packed: Data) -> list[int]:
    first = torch.tensor([int((packed.graph == g).nonzero()[0]) for g in range(int(packed.graph.max()) + 1)])
    return packed.x[first, 0].long().tolist()


def test_every_graph_has_one_place():
    partition_result = random_agents(dataset(), 4, 0)
    owned = [n for owner in partition_result.owners for n in numbers(owner)]
    examined = numbers(partition_result.test_set.inputs)
    assert sorted(owned + examined) == list(range(50))
    assert len(examined) == 4  # a tenth of 25 is 2.5, and ties go to training: two of each class
    assert sorted(len(owner.y) for owner in partition_result.owners) == [11, 11, 12, 12]
    for owner in partition_result.owners:
        masks = torch.stack([owner.train_mask, owner.val_mask, owner.test_mask])
        assert masks.sum(0).tolist() == [1] * len(owner.y)
        assert owner.graph_id.tolist() == numbers(owner)
        assert int(owner.val_mask.sum()) == 0
        assert int(owner.test_mask.sum()) >= 1


def test_the_exam_is_nobodys_and_shows_no_answer():
    test_set = random_agents(dataset(), 4, 0).test_set
    assert test_set.own_tests
    assert set(test_set.tests) == {EVERYBODY}
    assert test_set.inputs.get("y") is None
    assert test_set.labels.tolist() == [int(n >= 25) for n in numbers(test_set.inputs)]
    assert sorted(test_set.labels.bincount().tolist()) == [2, 2]


def test_file_order_deals_runs():
    partition_result = file_order_agents(dataset(), 5, 0)
    for owner in partition_result.owners:
        assert numbers(owner) == sorted(numbers(owner))
    assert max(numbers(partition_result.owners[0])) < min(numbers(partition_result.owners[1]))
    assert partition_result.owners[0].y.unique().tolist() == [0]
    assert partition_result.owners[4].y.unique().tolist() == [1]


def test_seeds():
    one, again, other = (random_agents(dataset(), 4, seed) for seed in (0, 0, 1))
    assert numbers(one.owners[0]) == numbers(again.owners[0])
    assert numbers(one.owners[0]) != numbers(other.owners[0])


def test_shares_are_settings():
    partition_result = split_data(
        "random", dataset(), 4, 0, global_test=0.2, own_test=0.2, own_validation=0.2
    )
    assert partition_result.facts["tests"] == 10
    assert [int(o.val_mask.sum()) for o in partition_result.owners] == [2, 2, 2, 2]
    assert partition_result.facts["training"] == [6, 6, 6, 6]
    without = random_agents(dataset(), 4, 0, own_test=0.0)
    assert not without.test_set.own_tests
    alone = random_agents(dataset(), 4, 0, global_test=0.0)
    assert alone.test_set.tests == {}
    assert sum(len(o.y) for o in alone.owners) == 50


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"own_test": 0.6, "own_validation": 0.4}, "leave nothing to train on"),
        ({"global_test": 0.0, "own_test": 0.0}, "nothing to test on"),
        ({"clients": 12}, "12 agents need at least 4 graphs each"),
    ],
)
def test_what_cannot_be_dealt(settings, words):
    with pytest.raises(BadInput, match=words):
        random_agents(dataset(), settings.pop("clients", 4), 0, **settings)


def links(graph: Data) -> set[tuple[int, int]]:
    return {(a, b) for a, b in graph.edge_index.t().tolist()}


class TestQuality:
    def test_groups_in_order_and_how_much_each_loses(self):
        given = {tuple(g.x[0].tolist()): links(g) for g in dataset().graphs}
        partition_result = random_agents(dataset(), 6, 0, perturbed=True)
        assert list(partition_result.facts["quality"].values()) == [
            "low",
            "low",
            "medium",
            "medium",
            "high",
            "high",
        ]
        assert partition_result.facts["rewired"] == {"low": 0.5, "medium": 0.3, "high": 0.1}
        for owner, moved in zip(partition_result.owners, [4, 4, 2, 2, 1, 1], strict=True):  # of eight links
            for g in range(len(owner.y)):
                nodes = (owner.graph == g).nonzero().flatten()
                here = owner.edge_index[:, torch.isin(owner.edge_index[0], nodes)] - nodes[0]
                now = {tuple(pair) for pair in here.t().tolist()}
                before = given[tuple(owner.x[nodes[0]].tolist())]
                assert len(now) == 16
                assert len(now - before) == 2 * moved
                assert all((b, a) in now and a != b for a, b in now)
        assert partition_result.pool is None

    def test_the_exam_is_as_it_was(self):
        plain, changed = (random_agents(dataset(), 6, 0, perturbed=p).test_set.inputs for p in (False, True))
        assert torch.equal(plain.edge_index, changed.edge_index)

    def test_a_complete_graph_has_no_room(self):
        once = torch.combinations(torch.arange(4)).t()
        whole = Data(x=torch.ones(4, 1), edge_index=torch.cat([once, once.flip(0)], 1), y=torch.tensor([0]))
        assert rewired(whole, 0.5, np.random.default_rng(0)) is whole

    def test_kinds_of_links_stand_in_both_directions(self):
        once = torch.tensor([[0, 1, 2], [1, 2, 3]])
        kinds = torch.tensor([[1.0], [2.0], [3.0]])
        graph = Data(
            x=torch.ones(6, 1),
            edge_index=torch.cat([once, once.flip(0)], 1),
            edge_attr=torch.cat([kinds, kinds]),
            y=torch.tensor([0]),
        )
        found = rewired(graph, 0.7, np.random.default_rng(0))
        by_link = dict(
            zip(map(tuple, found.edge_index.t().tolist()), found.edge_attr.flatten().tolist(), strict=True)
        )
        assert len(by_link) == 6
        assert sorted(by_link.values()) == [1, 1, 2, 2, 3, 3]
        assert all(by_link[b, a] == kind for (a, b), kind in by_link.items())
