"""Links randomised: the coin's bias, what it costs, and that the client's own are read once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom

import secure_fedgraph as sfg
from secure_fedgraph.core.accounting.events import PureRelease
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks

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


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 30.0, 700.0])
def test_the_lie_is_never_rarer_than_claimed(epsilon):
    lie = RandomisedLinks(epsilon)._lie / 2**64
    assert 0 < lie <= 0.5
    assert math.log((1 - lie) / lie) <= epsilon


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


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilons_that_are_none(epsilon):
    with pytest.raises(BadInput, match="give a positive number"):
        RandomisedLinks(epsilon)


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, seed=0)


class TestRuns:
    def run(self, federation: sfg.Federation, **arguments: object) -> sfg.Run:
        policy = replace(sfg.policies.plaintext(), randomizers=(RandomisedLinks(3.0),))
        return sfg.train(sfg.FedAvg(hidden=(8, 8), fanout=(2, 2)), federation, policy, **arguments)

    def test_links_are_paid_once_and_nothing_else_is_covered(self, federation):
        made = self.run(federation, rounds=3)
        assert [c.channel for c in made.charges].count("links") == 3
        assert made.privacy("edge")["epsilon"] == pytest.approx(3.0, abs=1e-3)
        assert made.privacy("node")["epsilon"] == made.privacy("client")["epsilon"] == "inf"

    def test_who_holds_a_link_pays_for_it(self):
        split = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, partition="vertical")
        policy = replace(sfg.policies.plaintext(), randomizers=(RandomisedLinks(3.0),))
        made = sfg.train(sfg.Glasu(hidden=8, sampler="public", public_nodes=20), split, policy, rounds=1)
        assert made.privacy("edge")["epsilon"] == pytest.approx(9.0, abs=1e-3)

    def test_resumed_they_are_the_same_links_and_cost_nothing_more(self, federation, tmp_path):
        class Stop(Exception):
            pass

        def stop(row: dict[str, object]) -> None:
            if row["round"] == 2:
                raise Stop

        with pytest.raises(Stop):
            self.run(federation, rounds=4, out=tmp_path, on_round=stop)
        made = self.run(federation, rounds=4, out=tmp_path, resume=True)
        charges = [c for c in read_ledger(tmp_path / "ledger.jsonl") if c.channel == "links"]
        assert len(charges) == 3 and charges[0].steps["edge"] == (PureRelease(3.0),)
        assert made.privacy("edge")["epsilon"] == pytest.approx(3.0, abs=1e-3)

    def test_training_never_sees_the_clients_own(self, federation, monkeypatch):
        seen = []
        drawn = RandomisedLinks.randomized

        def spy(self: RandomisedLinks, edge_index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            made = drawn(self, edge_index, x)
            seen.append(made)
            return made

        monkeypatch.setattr(RandomisedLinks, "randomized", spy)
        trained = []
        monkeypatch.setattr(
            sfg.FedAvg,
            "training_graph",
            lambda self, client: trained.append(client.graph.edge_index) or client.graph,
        )
        self.run(federation, rounds=2)
        assert len(trained) == 6
        assert all(any(torch.equal(t, s) for s in seen) for t in trained)
