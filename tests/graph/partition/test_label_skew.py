"""The FedEgo paper's partition: overlapping owners with few major classes, and a test graph apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.partition.label_skew import connected, label_skew
from secure_fedgraph.graph.partition.result import EVERYBODY, Partition

GRAPH = citation(nodes=600, classes=6, seed=2)
SMALL: dict[str, Any] = {"local_tests": 20}


def made(clients: int = 4, seed: int = 0, **settings: Any) -> Partition:
    return label_skew(GRAPH, clients, seed, **{**SMALL, **settings})


def test_nobody_holds_a_node_of_the_global_test() -> None:
    partition_result = made()
    whole = connected(GRAPH)
    held = torch.cat([own.node_id for own in partition_result.owners]).unique()
    assert len(partition_result.test_set.labels) == int(0.3 * len(whole))
    # identities by content: rows of features are as good as unique here, so count what is left over
    assert len(held) <= len(whole) - len(partition_result.test_set.labels)
    free = set(whole.tolist()) - set(held.tolist())
    matching = [node for node in free if (GRAPH.x[node] == partition_result.test_set.inputs.x[0]).all()]
    assert matching


def test_the_question_holds_no_answer_and_is_marked_as_a_whole() -> None:
    test_set = made().test_set
    assert set(test_set.inputs.keys()) <= {"x", "edge_index", "num_nodes"}
    assert test_set.own_tests
    assert list(test_set.tests) == [EVERYBODY]
    assert torch.equal(test_set.tests[EVERYBODY], torch.arange(len(test_set.labels)))
    assert int(test_set.inputs.edge_index.max()) < len(test_set.labels) == len(test_set.inputs.x)


def test_an_owners_nodes_are_split_as_the_released_code_splits_them() -> None:
    for own in made().owners:
        n = int(own.num_nodes)
        masks = torch.stack([own.train_mask, own.val_mask, own.test_mask])
        assert bool((masks.sum(0) == 1).all())
        assert masks.sum(1).tolist() == [n - n // 5 - 20, n // 5, 20]
        assert len(connected(own)) == n  # nobody is isolated in its own part
        assert torch.equal(own.x, GRAPH.x[own.node_id]) and torch.equal(own.y, GRAPH.y[own.node_id])


def test_most_of_an_owner_is_of_its_major_classes() -> None:
    partition_result = made(major_labels=2, local_share=0.15)
    for own, major in zip(partition_result.owners, partition_result.facts["major_labels"], strict=True):
        assert float(torch.isin(own.y, torch.tensor(major)).float().mean()) > 0.7
    even = made(major_rate=0.0, local_share=0.15)
    shares = [
        float(torch.isin(own.y, torch.tensor(major)).float().mean())
        for own, major in zip(even.owners, partition_result.facts["major_labels"], strict=True)
    ]
    assert sum(shares) / len(shares) < 0.6


def test_an_owners_tests_are_in_no_later_part_and_released_leaves_them_with_earlier_ones() -> None:
    owners = made().owners
    for i, own in enumerate(owners):
        tests = own.node_id[own.test_mask]
        for later in owners[i + 1 :]:
            assert not torch.isin(tests, later.node_id).any()
    assert trained_on_tests(owners) > 0


def trained_on_tests(owners: tuple[Data, ...]) -> int:
    tests = torch.cat([own.node_id[own.test_mask] for own in owners])
    return sum(int(torch.isin(own.node_id[own.train_mask], tests).sum()) for own in owners)


def test_strict_trains_on_nobodys_tests() -> None:
    strict, released = made(profile="strict").owners, made().owners
    assert trained_on_tests(strict) == 0
    for one, other in zip(strict, released, strict=True):
        assert torch.equal(one.node_id, other.node_id) and torch.equal(one.test_mask, other.test_mask)
        assert bool((one.train_mask <= other.train_mask).all())


def test_isolated_nodes_are_dropped_from_the_whole() -> None:
    lonely = Data(
        x=torch.cat([GRAPH.x, GRAPH.x[:5]]), y=torch.cat([GRAPH.y, GRAPH.y[:5]]), edge_index=GRAPH.edge_index
    )
    here, there = label_skew(GRAPH, 3, 0, **SMALL), label_skew(lonely, 3, 0, **SMALL)
    assert there.facts["isolated"] == here.facts["isolated"] + 5
    assert all(torch.equal(a.node_id, b.node_id) for a, b in zip(here.owners, there.owners, strict=True))


def test_the_facts_are_json_and_count_overlaps() -> None:
    partition_result = made()
    facts = json.loads(json.dumps(partition_result.facts))
    held = torch.bincount(torch.cat([own.node_id for own in partition_result.owners]))
    assert facts["held_by_several"] == int((held > 1).sum()) > 0
    assert facts["holders"] == int(held.max()) >= 2
    assert facts["sizes"] == [own.num_nodes for own in partition_result.owners]


def test_the_seed_decides_and_more_owners_leave_the_first_ones_alone() -> None:
    first, again, other = made(seed=1), made(seed=1), made(seed=2)
    assert all(torch.equal(a.node_id, b.node_id) for a, b in zip(first.owners, again.owners, strict=True))
    assert not torch.equal(first.owners[0].node_id, other.owners[0].node_id)
    assert all(
        torch.equal(a.node_id, b.node_id)
        for a, b in zip(first.owners, made(clients=5, seed=1).owners, strict=False)
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"major_labels": 7}, r"split.major_labels = 7: give 1 to 6"),
        ({"local_tests": 5000}, r"split.local_tests = 5000 leaves owner-0 without training nodes"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        made(**settings)


@pytest.mark.needs_data("planetoid")
def test_coras_owners_have_the_sizes_behind_the_papers_table_7() -> None:
    """About 975 nodes an owner with half of the nodes and 200 tests; with 0.3 and 300 far fewer."""
    from secure_fedgraph.graph.data.datasets import load

    cora = load("cora").graph
    sizes = [int(n) for seed in range(4) for n in label_skew(cora, 5, seed).facts["sizes"]]
    assert 925 < sum(sizes) / len(sizes) < 1025
    with pytest.raises(BadInput, match="without training nodes"):
        label_skew(cora, 5, 0, local_share=0.15, local_tests=300)
