"""train(): arguments, what a run holds, and that it repeats."""

from __future__ import annotations

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import everything


def fedavg() -> sfg.FedAvg:
    return sfg.FedAvg(hidden=(8, 8))


def test_a_run(federation, tmp_path):
    seen = []
    run = sfg.train(
        fedavg(),
        federation,
        sfg.policies.local_dp(1.0, 1.0),
        rounds=2,
        out=tmp_path,
        keep=everything,
        on_round=seen.append,
    )
    assert [row["round"] for row in run.history] == [1, 2]
    assert seen == list(run.history)
    assert 0 <= run.accuracy["global"] <= 1
    assert len(run.charges) == 6
    assert tuple(read_ledger(tmp_path / "ledger.jsonl")) == tuple(run.charges)
    # two releases with multiplier 1 are one with 1/sqrt(2): 6.573 on the exact Gaussian curve
    assert run.privacy("client")["epsilon"] == pytest.approx(6.573, abs=0.002)
    assert Transcript.load(tmp_path / "transcript").sent == run.transcript.sent


def test_seeded_runs_repeat_whatever_the_masks(federation):
    def state(policy, seed):
        return sfg.train(fedavg(), federation, policy, rounds=2, seed=seed).state

    first, again = (state(sfg.policies.masked(), 3) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = state(sfg.policies.masked(), 4)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_sampler_picks_the_cohort(federation):
    run = sfg.train(
        fedavg(),
        federation,
        sfg.policies.masked(),
        rounds=2,
        sampler=lambda round, clients, seed: clients[round - 1 : round + 1],
    )
    assert [o.contributors for o in run.transcript.opened] == [("owner-0", "owner-1"), ("owner-1", "owner-2")]


def test_a_cohort_of_strangers_names_them_and_the_clients(federation):
    with pytest.raises(BadInput, match="round 2 asks for 'x', and the clients are owner-0, owner-1"):
        sfg.train(
            fedavg(),
            federation,
            sfg.policies.plaintext(),
            rounds=2,
            sampler=lambda round, clients, seed: clients if round == 1 else (*clients, "x"),
        )


def test_a_cohort_below_the_quorum_ends_the_run(federation):
    with pytest.raises(Refused, match="answers cohorts of at least 2 and was asked in one of 1"):
        sfg.train(
            fedavg(),
            federation,
            sfg.policies.masked(),
            rounds=1,
            sampler=lambda round, clients, seed: clients[:1],
        )


def test_arguments(federation):
    with pytest.raises(BadInput, match="rounds = 0"):
        sfg.train(fedavg(), federation, rounds=0)
    with pytest.raises(BadInput, match=r"'outband'.*in_band"):
        sfg.train(fedavg(), federation, rounds=1, evaluation="outband")
    with pytest.raises(BadInput, match="'nonsense'"):
        sfg.FedAvg(nonsense=1)


def test_the_default_policy_is_the_strictest(federation):
    run = sfg.train(fedavg(), federation, rounds=1)
    assert run.policy["update"].protection.name == "masked"
    assert run.privacy("client")["epsilon"] == "inf"  # masking alone is never differential privacy
    with pytest.raises(BadInput, match="'graphs'"):
        run.privacy("graphs")


def test_in_band_scores_personal_models_too(federation):
    run = sfg.train(
        sfg.Local(hidden=(8, 8)), federation, sfg.policies.masked(), rounds=2, evaluation="in_band"
    )
    assert 0 < run.accuracy["local"] <= 1
    assert {s.channel for s in run.transcript.sent if "owner" in s.sender} >= {"metrics"}
    assert "personal_model" not in {s.channel for s in run.transcript.sent}


def test_an_algorithm_without_any_model_has_none_to_score_in_band(federation):
    class Silent(sfg.FedAvg):
        name = "silent"

        def released(self, state):
            return None

    with pytest.raises(BadInput, match="silent has no model in its clients: evaluate it with the referee"):
        sfg.train(Silent(hidden=(8, 8)), federation, sfg.policies.plaintext(), rounds=1, evaluation="in_band")


@pytest.mark.parametrize("policy", ["masked", None])
def test_too_few_clients_for_a_channel_are_refused_with_a_reason(federation, policy):
    few = sfg.Channel("few", sfg.Reveal.SUM, min_clients=9)

    class Own(sfg.FedAvg):
        name = "own"
        in_use = (few,)

        @few.answer
        def answer(self, client, given): ...

    with pytest.raises(Refused, match=r"'few'.* fewer than 9 clients .*smaller min_clients"):
        sfg.train(Own(hidden=(4, 4)), federation, policy, rounds=1)
