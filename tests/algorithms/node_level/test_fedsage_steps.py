"""FedSage under a node's budget: one node moves a step by one clip, no link moves anything, it is said."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedsgd.graph_sage import FedSageSteps
from secure_fedgraph.algorithms.fedsgd.heads.graph_sage import GraphSageHead
from secure_fedgraph.algorithms.fedsgd.settings import SageStepSettings
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.neighgen import training as at_home
from secure_fedgraph.models.parameters import load
from secure_fedgraph.models.per_record import tree_gradients
from secure_fedgraph.protocol.transcript import everything
from secure_fedgraph.running import preparation

SCHEMA = Schema(features=5, classes=3)
LARGE = {"features": 24, "classes": 3}


def head() -> GraphSageHead:
    return GraphSageHead(SageStepSettings(hidden=(6, 4)))


def graph() -> Data:
    draw = torch.Generator().manual_seed(0)
    links = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    y = torch.tensor([0, 2, 1, 1, 0, 2])
    return Data(x=torch.randn(6, 5, generator=draw), y=y, edge_index=links)


def weights(seed: int = 0, times: float = 0.5) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: value + times * torch.randn(value.shape, generator=draw)
        for name, value in head().init(SCHEMA, seed).items()
    }


def test_gradients_are_those_of_graph_sage_on_nodes_that_are_their_own_neighbours() -> None:
    given, w, model = graph(), weights(), head().model(SCHEMA)
    load(model, w)
    chosen = torch.tensor([4, 0, 2])
    found = head().gradients(w, given, chosen, SCHEMA)
    expected = tree_gradients(model, head().read(given), chosen[:, None].repeat(1, 3), given.y[chosen])
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=1e-3, atol=1e-3), name


@pytest.mark.parametrize("times", [0.5, 1e3, 1e20])
def test_one_node_moves_a_step_by_one_clip_whatever_the_coins_of_all(times: float) -> None:
    """All 64 outcomes of the coins of six nodes, with and without each node, whatever weights are sent."""
    given, w = graph(), weights(1, times)

    def opened(nodes: list[int]) -> torch.Tensor:
        found = head().gradients(w, given, torch.tensor(nodes, dtype=torch.long), SCHEMA)
        rows = torch.cat([value.flatten(1) for value in found.values()], dim=1)
        clipped = rows.double() / rows.double().norm(dim=1, keepdim=True).clamp(min=1)
        return clipped.sum(0)

    worst = 0.0
    for coins in product([False, True], repeat=6):
        taken = [node for node, coin in enumerate(coins) if coin]
        whole = opened(taken)
        for node in taken:
            without = opened([one for one in taken if one != node])
            worst = max(worst, float((whole - without).norm()))
    assert worst <= 1 + 1e-9


def test_others_gradients_are_the_same_bits_without_a_node() -> None:
    given, w = graph(), weights(2, 30.0)
    whole = head().gradients(w, given, torch.arange(6), SCHEMA)
    for node in range(6):
        rest = torch.tensor([one for one in range(6) if one != node])
        found = head().gradients(w, given, rest, SCHEMA)
        assert all(torch.equal(found[name], whole[name][rest]) for name in whole)


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, seed=0, nodes=300, **LARGE)


def released(federation: sfg.Federation, algorithm: sfg.Algorithm) -> sfg.Run:
    budget = sfg.Budget(8.0, 1e-5, "node")
    with pytest.warns(FormWarning, match="one sum over all owners"):
        return sfg.train(algorithm, federation, "distributed_dp", budget=budget, rounds=3, keep=everything)


@pytest.mark.parametrize("algorithm", [sfg.FedSage, sfg.FedAvg, sfg.FedProx])
def test_the_family_takes_the_form_and_an_edge_pays_nothing(federation, algorithm) -> None:
    run = released(federation, algorithm())
    assert run.algorithm.name == "fedsage-steps" and run.form["sums"] == "sent"
    spent = run.privacy()
    assert 0 < float(spent["node"]["epsilon"]) <= 8 and float(spent["edge"]["epsilon"]) == 0


def test_uploads_are_the_same_bytes_without_links(federation) -> None:
    algorithm = FedSageSteps(sums="sent", rate=1.0)
    first = sfg.train(algorithm, federation, "plaintext", rounds=3, keep=everything)
    links = {name: one.edge_index for name, one in federation.owners.items()}
    try:
        for one in federation.owners.values():
            one.edge_index = one.edge_index[:, :0]
        second = sfg.train(algorithm, federation, "plaintext", rounds=3, keep=everything)
    finally:
        for name, one in federation.owners.items():
            one.edge_index = links[name]
    for name, value in first.algorithm.released(first.state).items():
        assert torch.equal(value, second.algorithm.released(second.state)[name]), name


def test_mending_at_home_sends_the_same_bytes_and_costs_nothing(
    federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Personal models are asked for without noise too, so that uploads can be compared bit by bit."""
    mended, asked = at_home.mended, list[int]()
    monkeypatch.setattr(at_home, "mended", lambda *given: (asked.append(1), mended(*given))[1])

    def run(mend: str, **more: Any) -> sfg.Run:
        algorithm = FedSageSteps(sums="sent", rate=1.0, mend=mend)
        return sfg.train(algorithm, federation, rounds=2, keep=everything, **more)

    noised = {"policy": "distributed_dp", "budget": sfg.Budget(8.0, 1e-5, "node")}
    first, second = (run(mend, **noised) for mend in ("none", "at_home"))
    assert len(asked) == len(federation.names)
    assert first.privacy() == second.privacy() and len(first.charges) == len(second.charges) > 0
    monkeypatch.setattr(preparation, "is_private", lambda _: True)
    first, second = (run(mend, policy="plaintext") for mend in ("none", "at_home"))
    assert len(asked) == 2 * len(federation.names)
    letters = [
        [(one.channel, one.step, one.sender, one.recipient, one.bytes) for one in made.transcript.sent]
        for made in (first, second)
    ]
    assert letters[0] == letters[1]
    assert {one[0] for one in letters[1]} == {"class_sums", "step", "combined"}
    for channel, times in (("class_sums", 1), ("step", 2)):
        one, other = (made.transcript.view("server").uploads(channel) for made in (first, second))
        assert len(one) == len(other) == times * len(federation.names)
        for mine, theirs in zip(one, other, strict=True):
            assert mine.clients == theirs.clients and mine.values.keys() == theirs.values.keys()
            assert all(
                bytes(np.asarray(value)) == bytes(np.asarray(theirs.values[name]))
                for name, value in mine.values.items()
            )


def test_mending_is_of_classes() -> None:
    with pytest.raises(BadInput, match=r"training\.mend = at_home.*task = number"):
        FedSageSteps(mend="at_home").check(Schema(features=5, classes=1, task=Task.NUMBER, low=0, high=1))


@pytest.mark.parametrize("policy", ["masked", "distributed_dp", "strictest"])
def test_settings_of_local_training_by_hand_take_noisy_steps_where_a_policy_has_no_noise(policy: str) -> None:
    by_hand = Experiment(
        algorithm="fedsage",
        data="synthetic-citation",
        policy=policy,
        epsilon=4,
        unit="node",
        training={"learning_rate": 0.01},
    )
    assert (by_hand.make_policy().steps is None) == (policy == "distributed_dp")


def test_mending_is_refused_where_nobody_makes_personal_models() -> None:
    federation = sfg.federate("synthetic-citation", clients=2, seed=0, nodes=60, features=8)
    noised = sfg.policies.distributed_dp(1.0, 1.0)
    with pytest.raises(BadInput, match=r"training\.mend = 'at_home'.*'at_home'"):
        sfg.train(FedSageSteps(mend="at_home"), federation, noised, rounds=1, evaluation="at_home")
