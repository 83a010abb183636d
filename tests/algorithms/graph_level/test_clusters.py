"""GCFL's rules: when a cluster is split, where, and what a cluster's agents are given."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.gcfl import algorithm as clusters
from secure_fedgraph.core.errors import HostileMessage


def test_the_cut_parts_what_is_least_alike():
    updates = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, 0.0], [1.0, 0.0]])
    apart = clusters.minimum_cut(clusters.cosine_similarity(updates))
    assert apart.tolist() == [False, False, True, True, False]


@pytest.mark.parametrize(
    "similarity",
    [np.ones((2, 2)), np.zeros((3, 3)), clusters.sequence_similarity(torch.ones(4, 3))],
    ids=["two agents", "nothing alike", "equal sequences"],
)
def test_where_no_cut_says_anything_there_is_none(similarity):
    assert clusters.minimum_cut(similarity) is None


def test_agents_that_nothing_binds_are_cut_off():
    """Weights of zero are links all the same, so a graph of them is in one piece."""
    similarity = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    assert clusters.minimum_cut(similarity).tolist() == [False, True, True]


def test_a_zero_update_is_like_none():
    alike = clusters.cosine_similarity(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    assert alike[0, 1] == 1


def test_sequences_are_compared_by_warping_and_not_place_by_place():
    late = torch.tensor([[1.0, 1.0, 5.0], [5.0, 1.0, 5.0], [5.0, 5.0, 5.0]])
    alike = clusters.sequence_similarity(late)
    assert alike[0, 1] == pytest.approx(alike.max())
    assert alike[0, 2] < alike[0, 1]


@pytest.mark.parametrize(
    ("updates", "settled"),
    [
        ([[1.0], [-1.0], [0.0]], True),
        ([[1.0], [1.0], [1.0]], False),  # moves as a whole
        ([[0.01], [-0.01], [0.0]], False),  # nobody moves
    ],
)
def test_a_cluster_is_split_where_it_stands_still_and_an_agent_does_not(updates, settled):
    assert clusters.is_settled(torch.tensor(updates), 0.05, 0.1) is settled


@pytest.mark.parametrize("name", ["gcfl", "gcfl+"])
def test_agents_of_one_cluster_share_convolutions_and_no_others_do(name, monkeypatch):
    last = {}
    kind = type(small.algorithm(name))
    own_model = kind.own_model

    def watched(self, client):
        last[client.name] = own_model(self, client)
        return last[client.name]

    monkeypatch.setattr(kind, "own_model", watched)
    run = sfg.train(small.algorithm(name), small.federation(name), "plaintext", rounds=5)
    of = run.algorithm.notes(run.state)["clusters"]
    assert len(set(of.values())) == 2
    shared, own = "convolutions.0.nn.0.weight", "head.weight"
    for one, other in itertools.combinations(of, 2):
        assert torch.equal(last[one][shared], last[other][shared]) == (of[one] == of[other])
        assert not torch.equal(last[one][own], last[other][own])


def test_a_mean_before_an_update_is_refused():
    client = SimpleNamespace(name="owner-0", memory={})
    with pytest.raises(HostileMessage, match="before it sent"):
        sfg.algorithms.ALGORITHMS["gcfl"]().take_mean(client, {"step": torch.zeros(1)})
