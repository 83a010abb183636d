"""The controls of A5: nodes of all owners, from masked sums of updates to weights that the server planted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attacked import judged

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Blind, PlantedUnits
from secure_fedgraph.attacks.active.planted_units import next_words, playing, single_rows
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.privacy.broadcasts import BroadcastLimits
from secure_fedgraph.protocol.transcript import everything

NOISE = {"norm": 1.0, "multiplier": 1.0}
A5 = PlantedUnits()


def go(
    policy: str,
    kind: type[sfg.FedSage],
    clients: int = 3,
    rounds: int = 3,
    limits: BroadcastLimits | None = None,
    **settings: Any,
) -> FinishedRun:
    federation = sfg.federate("synthetic-citation", clients=clients, seed=0, nodes=600, features=300)
    made = getattr(sfg.policies, policy)(**(NOISE if policy.endswith("dp") else {}))
    made = replace(made, broadcasts=limits)
    algorithm = kind(hidden=(128, 32), epochs=1, **settings)
    run = sfg.train(algorithm, federation, made, rounds=rounds, seed=0, keep=everything)
    return FinishedRun.of(run, 0)


@pytest.mark.parametrize("clients", [3, 6])
@pytest.mark.parametrize("settings", [{}, {"optimizer": "sgd", "learning_rate": 1.0}])
def test_positive_masks_hide_whose_nodes_they_are_and_not_the_nodes(
    settings: dict[str, Any], clients: int
) -> None:
    run = go("masked", playing(sfg.FedSage), clients, **settings)
    with pytest.raises(Blind):
        judged(run, A5)
    score = judged(run, A5, aim="residual")
    assert score.details["rows_named"] >= 20
    assert score.details["share_that_are_nodes"] >= 0.95
    assert score.low > score.baseline


def test_positive_single_uploads_name_each_owners_nodes() -> None:
    score = judged(go("plaintext", playing(sfg.FedSage)), A5)
    assert score.details["share_that_are_nodes"] >= 0.95
    assert score.low > score.baseline


@pytest.mark.parametrize("policy", ["distributed_dp", "masked"])
def test_negative_under_noise_and_of_an_honest_server_no_row_is_named(policy: str) -> None:
    kind = sfg.FedSage if policy == "masked" else playing(sfg.FedSage)
    assert judged(go(policy, kind), A5, aim="residual").details["rows_named"] == 0


def test_negative_owners_that_limit_broadcasts_refuse_planted_weights() -> None:
    for limits in ({"change": 2.0}, {"units": 0.05}):
        with pytest.raises(HostileMessage, match="update"):
            go("masked", playing(sfg.FedSage), limits=BroadcastLimits(**limits))


def test_positive_a_server_that_knows_the_limits_plants_within_them() -> None:
    plain = {"optimizer": "sgd", "learning_rate": 1.0}
    limits = BroadcastLimits(change=6.0, units=0.05)
    score = judged(
        go("masked", playing(sfg.FedSage, 6.0, 4), rounds=6, limits=limits, **plain), A5, aim="residual"
    )
    assert score.details["rows_named"] >= 5
    assert score.details["share_that_are_nodes"] >= 0.95


def test_rows_of_several_nodes_and_units_that_did_not_move_are_left_out() -> None:
    nodes = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    weight = np.stack([0.3 * nodes[0], 0.3 * nodes[0] + 0.2 * nodes[1], np.zeros(3)])
    bias = np.array([0.3, 0.5, 0.0])
    assert single_rows(weight, bias).tolist() == [nodes[0].tolist()]


def test_a_unit_of_several_nodes_asks_for_a_word_that_some_of_them_have() -> None:
    nodes = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    weight = np.stack([0.3 * nodes[0], 0.3 * nodes[0] + 0.2 * nodes[1]])
    asked = {0: np.array([0, 1]), 1: np.array([0, 1])}
    following = next_words(asked, weight, np.array([0.3, 0.5]), np.random.default_rng(0))
    assert following[1].tolist() == [0, 1, 2]
    assert len(following[0]) == 2
