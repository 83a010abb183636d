"""C7's controls: sums of few nodes are solved for their members, and a node's noise stops it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from attacked import judged

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.attacks import ATTACKS, Blind, Knowledge
from secure_fedgraph.attacks.feature_sums import SummedMembers, shares_in
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.protocol.transcript import everything

POLICIES: dict[str, Any] = {
    "plaintext": sfg.policies.plaintext(),
    "masked": sfg.policies.masked(),
    "noise": sfg.policies.distributed_dp(1.0, 1.2),
}


@cache
def finished(policy: str, anonymity: int = 10) -> FinishedRun:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=300, features=200)
    algorithm = sfg.FedSagePlus(
        feedback="prototypes",
        hidden=(4, 4),
        encoder=(4, 4),
        generator_epochs=1,
        federated_epochs=0,
        anonymity=anonymity,
    )
    run = sfg.train(algorithm, federation, POLICIES[policy], rounds=1, seed=0, keep=everything)
    return FinishedRun.of(run, seed=0)


def score(policy: str, reader: str, aim: str, anonymity: int = 10) -> Any:
    return judged(finished(policy, anonymity), SummedMembers(), (reader,), aim)


@pytest.mark.parametrize("reader", ["server", "owner-0"])
def test_members_of_a_sum_without_noise_are_read_from_a_pool(reader: str) -> None:
    assert score("plaintext", reader, "run").value > 0.8
    assert score("plaintext", reader, "residual").value > 0.9


def test_classes_of_one_node_or_more_show_their_members_exactly() -> None:
    assert score("plaintext", "server", "run", anonymity=1).value > 0.97


@pytest.mark.parametrize("reader", ["server", "owner-0"])
def test_masks_hide_owners_and_not_their_sum(reader: str) -> None:
    with pytest.raises(Blind, match="masked"):
        score("masked", reader, "run")
    assert score("masked", reader, "residual").value > 0.9  # k-anonymity is no guarantee


@pytest.mark.parametrize("reader", ["server", "owner-0"])
def test_noise_for_a_node_stops_it(reader: str) -> None:
    with pytest.raises(Blind):
        score("noise", reader, "run")
    left = score("noise", reader, "residual")
    assert left.value < 0.7
    assert left.details["tpr_at_1_percent"] < 0.2


def test_shares_of_a_mixture_are_those_it_was_made_of() -> None:
    rows = np.random.default_rng(0).random((40, 60))
    inside = np.arange(40) % 3 == 0
    assert np.abs(shares_in(rows[inside].sum(0), rows, 3000) - inside).max() < 0.1


def test_without_the_channel_it_is_blind() -> None:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=20)
    run = sfg.train(sfg.FedSage(hidden=(4, 4)), federation, "plaintext", rounds=1, keep=everything)
    for aim in ("run", "residual"):
        with pytest.raises(Blind):
            getattr(ATTACKS["c7-summed-members"](), aim)(run.transcript.view("server"), Knowledge())


@pytest.mark.parametrize("channel", ["class_sums", "moments"])
def test_members_of_a_forms_class_sums_are_read_without_noise_and_not_with_it(channel: str) -> None:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=300, features=200)
    name, settings = ("fedsage-steps", {"sums": "sent"}) if channel == "class_sums" else ("fedego-sums", {})
    found = []
    for policy in (sfg.policies.masked(), sfg.policies.distributed_dp(1.0, 8.0)):
        algorithm = ALGORITHMS[name](**settings, **({} if settings else {"second_moments": "own"}))
        run = sfg.train(algorithm, federation, policy, rounds=1, seed=0, keep=everything)
        found.append(judged(FinishedRun.of(run, seed=0), SummedMembers(), aim="residual"))
    assert found[0].value > 0.8 and found[0].leaks
    assert found[1].value < 0.65
