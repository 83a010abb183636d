"""FedAvg, FedProx and Local on sets of graphs: the same algorithms, another network."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput

SMALL: dict[str, Any] = {"hidden": (8, 8), "batch": 16, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=3, partition="dirichlet", graphs=200)


@pytest.mark.parametrize("network", ["gin", "gcn", "gat", "sage"])
def test_fedavg_learns_whole_graphs(federation, network):
    settings = {**SMALL, "network": network, "epochs": 5, "learning_rate": 0.02}
    run = sfg.train(sfg.FedAvg(**settings), federation, sfg.policies.masked(), rounds=10)
    first, *later = (row["loss"] for row in run.history)
    assert min(later) < first - 0.01


@pytest.mark.parametrize("kind", [sfg.Local, sfg.FedProx])
def test_the_others_run(federation, kind):
    run = sfg.train(kind(**SMALL, network="gin", dropout=0.5), federation, sfg.policies.masked(), rounds=1)
    assert 0 <= run.accuracy["local"] <= 1


def test_the_same_seed_draws_the_same_dropout(federation):
    one, other = (
        sfg.train(
            sfg.FedAvg(**SMALL, network="gin", dropout=0.5), federation, sfg.policies.plaintext(), rounds=1
        )
        for _ in range(2)
    )
    assert all(torch.equal(value, other.state[key]) for key, value in one.state.items())


def test_a_network_of_nodes_is_refused_for_graphs_and_the_other_way(federation):
    with pytest.raises(BadInput, match="network = 'ego' classifies nodes, and these data are whole graphs"):
        sfg.train(sfg.FedAvg(**SMALL, network="ego"), federation, sfg.policies.plaintext(), rounds=1)
    nodes = sfg.federate("synthetic-citation", clients=2, nodes=60, features=16)
    with pytest.raises(BadInput, match="network = 'gin' classifies whole graphs, not nodes"):
        sfg.train(sfg.FedAvg(**SMALL, network="gin"), nodes, sfg.policies.plaintext(), rounds=1)
    with pytest.raises(BadInput, match="the gin network's widths are equal"):
        sfg.FedAvg(hidden=(8, 4), network="gin")
