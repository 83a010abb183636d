"""What clients refuse of the models that they are given: by public facts, before anything is charged."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedridge.algorithm import FedRidge
from secure_fedgraph.attacks import ConstantAnswers
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.privacy.broadcasts import (
    Beginning,
    BroadcastCheck,
    BroadcastLimits,
    distance,
    planted_share,
)
from secure_fedgraph.storage.party_store import PartyStore

SCHEMA, SEED = Schema(40, 3), 5
ALGORITHM = sfg.FedSage(hidden=(16, 8), fanout=(2, 2))
START = ALGORITHM.init(SCHEMA, SEED)


def beginning(channel: str) -> Beginning | None:
    start = ALGORITHM.given_first("update" if channel == "metrics" else channel, SCHEMA, SEED)
    return None if start is None else Beginning(start)


def moved(model: Any, by: float) -> dict[str, torch.Tensor]:
    """The model at a distance."""
    width = sum(value.numel() for value in model.values())
    return {name: value + by / math.sqrt(width) for name, value in model.items()}


def check(change: float | None = 1.0, units: float | None = None) -> tuple[BroadcastCheck, dict[str, Any]]:
    return BroadcastCheck(BroadcastLimits(change, units, SEED), beginning), {}


def test_round_one_is_the_public_start_and_nothing_else() -> None:
    made, memory = check()
    made.check("update", 1, START, memory)
    for other in (moved(START, 0.5), ALGORITHM.init(SCHEMA, SEED + 1)):
        with pytest.raises(HostileMessage, match="the public start"):
            check()[0].check("update", 1, other, {})


@pytest.mark.parametrize(("late", "origin"), [(False, "round 1's"), (True, "the public start")])
@pytest.mark.parametrize("round", [2, 4])
def test_a_model_moves_one_step_a_round_and_as_many_as_a_client_missed(
    round: int, late: bool, origin: str
) -> None:
    for by in (round - 1.01, round - 0.99):
        made, memory = check()
        if not late:  # who was given none before knows how far the start can be
            made.check("update", 1, START, memory)
        with nullcontext() if by < round - 1 else pytest.raises(HostileMessage, match=origin):
            made.check("update", round, moved(START, by), memory)


def test_all_requests_of_a_round_are_measured_from_the_round_before() -> None:
    made, memory = check()
    for _ in range(2):
        made.check("update", 1, START, memory)
    with pytest.raises(HostileMessage, match="the public start"):
        made.check("update", 1, moved(START, 0.9), memory)  # round 1 has no step
    made.check("update", 2, moved(START, 0.9), memory)
    made.check("update", 2, moved(START, -0.9), memory)
    with pytest.raises(HostileMessage, match="round 1's"):
        made.check("update", 2, moved(START, 1.8), memory)
    made.check("update", 3, moved(START, 1.8), memory)
    with pytest.raises(HostileMessage, match="round 2's"):  # from round 2's first, at 0.9, on any channel
        made.check("metrics", 3, moved(START, -0.9), memory)


@pytest.mark.parametrize(("by", "refused"), [(0.99, False), (1.01, True)])
def test_a_model_to_be_scored_is_one_step_from_the_rounds(by: float, refused: bool) -> None:
    for rounds in (1, 3):  # rounds in which the client was given the model, all along one line
        made, memory = check()
        for round in range(1, rounds + 1):
            made.check("update", round, moved(START, 0.9 * (round - 1)), memory)
        kept = dict(memory)
        scored = moved(START, 0.9 * (rounds - 1) + by)
        if refused:
            with pytest.raises(HostileMessage, match=f"'metrics'.*round {rounds}'s"):
                made.check_scored("metrics", rounds, scored, memory)
        else:
            made.check_scored("metrics", rounds, scored, memory)
        assert memory == kept  # the next round's model is measured from this round's


def test_a_model_to_be_scored_by_a_client_that_missed_rounds_is_some_steps_more() -> None:
    made, memory = check()
    for not_looked_at in ({}, {"another": torch.zeros(4, 40)}):
        check(units=0.0)[0].check_scored("metrics", 1, not_looked_at, memory)
    made.check_scored("metrics", 2, moved(START, 1.99), memory)  # it was never given one
    made.check("update", 2, START, memory)
    made.check_scored("metrics", 4, moved(START, 2.99), memory)
    with pytest.raises(HostileMessage, match="round 2's"):
        made.check_scored("metrics", 4, moved(START, 3.01), memory)


@pytest.mark.parametrize(("limit", "reason"), [({"units": 0.05}, "planted"), ({"change": 2.0}, "round 1's")])
def test_a_model_that_always_answers_one_class_is_not_scored(limit: dict[str, float], reason: str) -> None:
    """Attack I2."""
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=40)
    policy = replace(sfg.policies.plaintext(), broadcasts=BroadcastLimits(**limit))
    asked: dict[str, Any] = {"rounds": 2, "seed": 3, "evaluation": "in_band"}
    algorithm: dict[str, Any] = {"hidden": (8,), "fanout": (2,)}
    assert sfg.train(sfg.FedSage(**algorithm), federation, policy, **asked).history
    with pytest.raises(HostileMessage, match=f"'metrics'.*{reason}"):
        sfg.train(ConstantAnswers.plays(sfg.FedSage)(**algorithm), federation, policy, **asked)


def test_rounds_before_a_channels_first_are_no_steps() -> None:
    plus = sfg.FedSagePlus(hidden=(8,), fanout=(2,), generator="shared", federated_epochs=3)
    assert (plus.first_round("update"), plus.first_round("shared_generator")) == (5, 2)
    made = BroadcastCheck(BroadcastLimits(1.0), lambda channel: Beginning(START, 5))
    with pytest.raises(HostileMessage, match="the public start"):
        made.check("update", 5, moved(START, 0.9), {})
    made.check("update", 6, moved(START, 0.9), {})


def test_what_is_remembered_is_a_copy() -> None:
    made, memory = check()
    given = {name: value.clone() for name, value in START.items()}
    made.check("update", 1, given, memory)
    for value in given.values():
        value += 1
    made.check("update", 2, START, memory)


def test_rows_that_training_does_not_make() -> None:
    torch.manual_seed(0)
    weight = torch.randn(10, 200)
    assert planted_share(weight) == 0
    weight[0] = 0
    weight[1, 7:9] = 100
    weight[3] = 2 * weight[2]
    assert planted_share(weight) == pytest.approx(0.4)
    assert planted_share(1e20 * weight) == planted_share(1e-25 * weight) == pytest.approx(0.4)
    made, _ = check(change=None, units=0.3)
    planted = {**START, "layers.0.own.weight": torch.zeros_like(START["layers.0.own.weight"])}
    with pytest.raises(HostileMessage, match="100% of the units"):
        made.check("update", 1, planted, {})
    made.check("update", 7, moved(START, 50.0), {})  # how far it moved is not limited


def test_few_inputs_and_opposite_rows_are_no_plant() -> None:
    torch.manual_seed(0)
    assert planted_share(torch.randn(64, 2)) == 0
    head = torch.randn(1, 200)
    assert planted_share(torch.cat([head, -head])) == 0


@pytest.mark.parametrize("name", ["fedsgd", "apflgate", "fedsage"])
def test_honest_scores_in_band_and_mean_updates_are_not_refused(name: str) -> None:
    data = "synthetic-molecules" if name == "apflgate" else "synthetic-citation"
    asked = {"algorithm": name, "data": data, "clients": 3, "rounds": 2, "evaluation": "in_band"}
    values = {**asked, "policy": "masked", "broadcast": {"change": 50.0}}
    run = execute(load(None, values, ()), None)
    assert len(run.history) == 2


def test_an_algorithm_that_starts_with_rows_of_zeros_is_refused_before_its_run() -> None:
    values = {"algorithm": "fedsgd", "data": "synthetic-citation", "policy": "masked"}
    with pytest.raises(BadInput, match=r"broadcast\.units = 0\.05: fedsgd"):
        execute(load(None, {**values, "rounds": 1, "broadcast": {"units": 0.05}}, ()), None)


def test_channels_that_give_something_else_have_no_start() -> None:
    plus = sfg.FedSagePlus(hidden=(8,), fanout=(2,), generator="shared")
    start = plus.given_first("update", SCHEMA, SEED)
    assert (
        start is not None and distance(start, sfg.FedSage(hidden=(8,), fanout=(2,)).init(SCHEMA, SEED)) == 0
    )
    assert plus.given_first("neighgen", SCHEMA, SEED) is None
    assert sfg.FedEgo().given_first("mashes", SCHEMA, SEED) is None


@pytest.mark.parametrize(
    "limits", [{}, {"change": 0.0}, {"change": math.nan}, {"change": "1"}, {"units": 1.0}, {"units": -0.1}]
)
def test_limits_out_of_range(limits: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="broadcast"):
        BroadcastLimits(**limits)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"chang": 1.0}, "chang"),
        ({"seed": 1}, "seed"),
        ({"change": True}, "change"),
    ],
)
def test_keys_of_the_command_line(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=rf"broadcast\.{named}"):
        load(None, {"broadcast": settings}, ()).make_policy()


class Jumping(sfg.FedSage):
    """A server that changes its second model, and owners as they are."""

    def takes(self, channel: str, schema: Schema) -> Any:
        return super().takes(channel, schema)

    def round(self, round: Any, state: Any) -> Any:
        return super().round(round, moved(state, 3.0) if round.number == 2 else state)


def test_every_client_of_a_run_refuses_before_it_is_charged(tmp_path: Any) -> None:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=20)
    policy = replace(
        sfg.policies.distributed_dp(norm=0.1, multiplier=0.01), broadcasts=BroadcastLimits(change=1.0)
    )
    settings: dict[str, Any] = {"hidden": (8,), "fanout": (2,)}
    assert len(sfg.train(sfg.FedSage(**settings), federation, policy, rounds=3, seed=3).history) == 3
    ledger = tmp_path / "ledger"
    with pytest.raises(HostileMessage, match="round 1's"):
        sfg.train(Jumping(**settings), federation, policy, rounds=3, seed=3, ledger=ledger)
    assert '"round": 2' not in ledger.read_text()


def test_a_resumed_client_remembers_the_last_model(tmp_path: Any) -> None:
    made, memory = check()
    made.check("update", 1, START, memory)
    store = PartyStore(tmp_path / "a", "a")
    store.save(memory, "00001-00000000")
    resumed = BroadcastCheck(made.limits, beginning)
    with pytest.raises(HostileMessage, match="round 1's"):
        resumed.check("update", 2, moved(START, 1.5), store.load("00001-00000000"))


def test_an_algorithm_that_gives_no_model_is_refused() -> None:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=20)
    policy = replace(sfg.policies.masked(), broadcasts=BroadcastLimits(change=1.0))
    with pytest.raises(BadInput, match="broadcast: fedridge"):
        sfg.train(FedRidge(), federation, policy, rounds=1)
