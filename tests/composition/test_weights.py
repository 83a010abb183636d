"""A mean weighted by training items: the weight is inside the upload that it weighs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training.weighting import WEIGHT, weighed, weighted_mean
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.policies import homomorphic, local_dp, masked, plaintext
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import everything

SMALL = {"hidden": (8, 8), "learning_rate": 0.05, "heaviest": 100}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    """Owners of different sizes."""
    return sfg.federate("synthetic-citation", clients=4, partition="louvain", nodes=160, features=16, seed=3)


def run(federation, policy, weighted=True, rounds=1, **more):
    made = sfg.FedAvg(**SMALL, weighted=weighted)
    return sfg.train(made, federation, policy, rounds=rounds, seed=0, keep=everything, **more)


def expected(federation, names):
    """The weighted mean by hand, from each owner's own plaintext update."""
    ones = {n: run(federation, plaintext(), weighted=False, sampler=lambda *_, n=n: (n,)) for n in names}
    sizes = {n: min(int(federation.owners[n].train_mask.sum()), 100) for n in names}
    assert len(set(sizes.values())) > 1
    start = sfg.FedAvg(**SMALL).init(federation.schema, sub_seed(0, "initialisation"))
    return {
        key: sum(sizes[n] * (ones[n].state[key] - start[key]) for n in names) / sum(sizes.values())
        + start[key]
        for key in start
    }


@pytest.mark.parametrize("policy", [plaintext(), masked(), homomorphic()], ids=lambda p: p.name)
def test_it_is_the_weighted_mean(federation, policy):
    made = run(federation, policy)
    for key, value in expected(federation, federation.names).items():
        assert torch.allclose(made.state[key], value, atol=2e-5)
    (seen,) = made.transcript.view("server").sums("update")
    shares = [min(int(g.train_mask.sum()), 100) / 100 for g in federation.owners.values()]
    assert float(seen.values[WEIGHT][0]) == pytest.approx(sum(shares), abs=1e-6)


def test_weights_are_hidden_where_updates_are(federation):
    made = run(federation, masked())
    channels = {s.channel for s in made.transcript.sent if s.sender != "referee" and s.recipient != "referee"}
    assert channels == {"carrier/keys", "update"}  # no second channel for them
    assert made.transcript.view("server").uploads("update") == []


def test_of_those_who_are_left(federation):
    left = Dropouts(at={(1, "owner-2"): "answer"})
    made = run(federation, masked(), dropouts=left)
    rest = tuple(n for n in federation.names if n != "owner-2")
    for key, value in expected(federation, rest).items():
        assert torch.allclose(made.state[key], value, atol=2e-5)


def test_equal_weights_are_the_unweighted_mean(federation):
    made = sfg.FedAvg(**{**SMALL, "heaviest": 1}, weighted=True)
    one = sfg.train(made, federation, plaintext(), rounds=2, seed=0)
    other = run(federation, plaintext(), weighted=False, rounds=2)
    assert all(torch.allclose(one.state[k], other.state[k], atol=1e-6) for k in one.state)


def test_unweighted_is_the_default_and_sends_no_weight(federation):
    assert sfg.FedAvg().settings.weighted is False
    made = run(federation, plaintext(), weighted=False)
    (seen,) = made.transcript.view("server").sums("update")
    assert WEIGHT not in seen.values


def test_a_clip_shortens_the_weight_with_the_update_and_noise_does_not_blow_the_mean_up(federation):
    made = run(federation, local_dp(0.01, 1e-6))
    for seen in made.transcript.view("server").uploads("update"):
        flat = np.concatenate([v.reshape(-1) for v in seen.values.values()])
        assert np.linalg.norm(flat) <= 0.01 * 1.01
    noisy = weighted_mean({"w": torch.tensor([1.0]), WEIGHT: torch.tensor([-3.0])}, 4, 100)
    assert float(noisy["w"]) == pytest.approx(25.0)  # divided by the least that four weights can add up to


def test_a_weight_is_bounded():
    update = {"w": torch.tensor([1.0])}
    for items, share in ((0, 0.01), (1, 0.01), (50, 0.5), (100, 1.0), (10**9, 1.0)):
        assert float(weighed(update, items, 100)[WEIGHT]) == pytest.approx(share)
    with pytest.raises(BadInput, match="heaviest"):
        sfg.FedAvg(heaviest=0)
