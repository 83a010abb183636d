"""Links randomised: the coin's bias; and where clients divide them, one answers about each pair."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.glasu.checks import pairs
from secure_fedgraph.algorithms.glasu.vertical import ALL_LINKS
from secure_fedgraph.client import Client
from secure_fedgraph.core.accounting.events import OneHolderRelease, event
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks

SMALL = {"hidden": 8, "sampler": "public", "public_nodes": 20, "steps": 2}
NODES = 120


def own() -> torch.Tensor:
    ring = torch.arange(NODES)
    return torch.stack([ring, (ring + 1) % NODES])


def said(epsilon: float) -> np.ndarray:
    low, high = own().min(0).values.numpy(), own().max(0).values.numpy()
    found = RandomisedLinks(epsilon)._said(np.unique(low * NODES + high), NODES)
    return np.concatenate(list(found))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_each_pair_lies_as_often_as_it_may_and_no_less(epsilon):
    truth = {int(min(a, b) * NODES + max(a, b)) for a, b in own().T.tolist()}
    pairs, lie = NODES * (NODES - 1) // 2, 1 / (1 + math.exp(epsilon))
    true = false = 0
    for _ in range(10):
        joined = set(said(epsilon).tolist())
        assert all(number % NODES > number // NODES for number in joined)
        true, false = true + len(joined & truth), false + len(joined - truth)
    low, high = binom.interval(1 - 1e-6, 10 * NODES, 1 - lie)
    assert low <= true <= high
    low, high = binom.interval(1 - 1e-6, 10 * (pairs - NODES), lie)
    assert low <= false <= high


def test_about_as_many_links_as_before_and_the_most_alike():
    x = torch.eye(NODES)[torch.arange(NODES) // 4 * 4]  # in fours, alike within
    fours = [(4 * g + i, 4 * g + j) for g in range(NODES // 4) for i in range(4) for j in range(i + 1, 4)]
    links = torch.tensor(fours).T
    drawn = RandomisedLinks(4.0).randomized(links, x)
    assert torch.equal(drawn[:, : drawn.shape[1] // 2].flip(0), drawn[:, drawn.shape[1] // 2 :])
    pairs = drawn[:, : drawn.shape[1] // 2]
    assert len(fours) * 0.5 < pairs.shape[1] < len(fours) * 1.6
    assert float((pairs[0] // 4 == pairs[1] // 4).double().mean()) > 0.7


def test_no_links_and_no_nodes_to_link():
    assert RandomisedLinks(50.0).randomized(torch.empty(2, 0, dtype=torch.long), torch.ones(5, 2)).shape == (
        2,
        0,
    )
    assert RandomisedLinks(1.0).randomized(torch.tensor([[0], [0]]), torch.ones(1, 2)).shape == (2, 0)


@pytest.mark.parametrize("clients", [2, 3, 4, 7])
@pytest.mark.parametrize("nodes", [1, 2, 9, 20])
def test_every_pair_is_one_clients_and_counted_by_it(clients, nodes):
    every = [a * nodes + b for a, b in itertools.combinations(range(nodes), 2)]
    numbers = np.array(every, dtype=np.int64)
    parts = [DividedLinks(1.0, clients).at(place, clients) for place in range(clients)]
    answered = np.stack([part._answered(numbers, nodes) for part in parts])
    assert (answered.sum(0) == 1).all()
    assert [part._pairs(nodes) for part in parts] == answered.sum(1).tolist()


def test_only_its_own_part_moves_what_a_client_says():
    x = torch.ones(30, 2)
    ring = torch.stack([torch.arange(30), (torch.arange(30) + 1) % 30])
    for place in range(3):
        part = DividedLinks(700.0, 3).at(place, 3)  # coins that never lie
        said = part.randomized(ring, x)
        own = {tuple(sorted(p)) for p in ring.T.tolist() if sum(p) % 3 == place}
        assert {tuple(sorted(p)) for p in said.T.tolist()} == own
        without = part.randomized(ring[:, ring.sum(0) % 3 == place], x)
        assert torch.equal(said, without)


def test_lies_fall_on_its_own_pairs_only_and_as_often_as_claimed():
    part, nodes = DividedLinks(1.0, 3).at(1, 3), 300
    lies = np.concatenate([*part._said(np.empty(0, np.int64), nodes)])
    assert ((lies // nodes + lies % nodes) % 3 == 1).all()
    expected = part._pairs(nodes) / (1 + np.e)
    assert abs(len(lies) - expected) < 6 * expected**0.5


def test_one_epsilon_however_many_hold_the_link_and_it_is_read_back():
    divided = DividedLinks(3.0, 3)
    (paid,) = divided.costs()["edge"]
    assert paid == OneHolderRelease(3.0) == event(paid.to_json())


@pytest.mark.parametrize(
    "make",
    [
        lambda: DividedLinks(1.0, 1),
        lambda: DividedLinks(1.0, 3, index=3),
        lambda: DividedLinks(1.0, 3).at(0, 4),
        lambda: DividedLinks(1.0, 3).randomized(torch.tensor([[0], [1]]), torch.ones(2, 1)),
    ],
)
def test_parts_that_cannot_be(make):
    with pytest.raises(BadInput, match="links"):
        make()


@pytest.fixture(scope="module")
def split() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, partition="vertical")


def policy(made: sfg.Policy, *randomizers: RandomisedLinks) -> sfg.Policy:
    return replace(made, randomizers=randomizers)


def test_a_run_pays_once_and_all_clients_use_the_same_links(split, monkeypatch):
    kept: dict[str, torch.Tensor] = {}
    handle = Client.handle

    def spied(client: Client, raw: bytes) -> bytes:
        reply = handle(client, raw)
        if ALL_LINKS in client.memory:
            kept[client.name] = client.memory[ALL_LINKS]
        return reply

    monkeypatch.setattr(Client, "handle", spied)
    divided = policy(sfg.policies.masked(), DividedLinks(8.0, 3))
    made = sfg.train(sfg.Glasu(links="divided", **SMALL), split, divided, rounds=2)
    assert made.privacy("edge")["epsilon"] == pytest.approx(8.0, abs=1e-3)
    assert made.privacy("node")["epsilon"] == "inf"
    assert [c.channel for c in made.charges].count("links") == 3
    sets = [{tuple(p) for p in links.T.tolist()} for links in kept.values()]
    assert len(sets) == 3
    assert sets[0] == sets[1] == sets[2]


@pytest.mark.parametrize(
    ("algorithm", "randomizers"),
    [
        (sfg.Glasu(links="divided", **SMALL), ()),
        (sfg.Glasu(links="divided", **SMALL), (RandomisedLinks(1.0),)),
        (sfg.Glasu(**SMALL), (DividedLinks(1.0, 3),)),
        (sfg.GlasuStandalone(links="divided"), (DividedLinks(1.0, 3),)),
    ],
)
def test_links_are_handed_out_where_and_only_where_they_are_divided(split, algorithm, randomizers):
    with pytest.raises(BadInput, match="links"):
        sfg.train(algorithm, split, policy(sfg.policies.masked(), *randomizers), rounds=1)


def test_another_algorithm_hands_nothing_out():
    federation = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, seed=0)
    with pytest.raises(BadInput, match="does not hand them out"):
        sfg.train(sfg.FedAvg(), federation, policy(sfg.policies.masked(), DividedLinks(1.0, 3)), rounds=1)


@pytest.mark.parametrize(
    "hostile",
    [
        [[0.0, 1.5]],
        [[1.0, 0.0]],
        [[0.0, 10.0]],
        [[-1.0, 2.0]],
        [[0.0, 4.0], [0.0, 1.0]],
        [[0.0, 1.0], [0.0, 1.0]],
        [[0.0, 2.0]],  # another client's part
    ],
)
def test_hostile_links_of_a_peer(hostile):
    with pytest.raises(HostileMessage, match="client-1"):
        pairs("client-1", torch.tensor(hostile), nodes=10, place=1, clients=3)
