"""The controls of I1, I2 and I3: what the scores that owners send say about their test nodes."""

from __future__ import annotations

from functools import cache
from typing import Any

import attacked
import numpy as np
import pytest
from attacked import judged

from secure_fedgraph.attacks import Attack, Blind, ConstantAnswers, CountedScores, ScoredSizes
from secure_fedgraph.attacks.active.constant_answers import BIAS, playing
from secure_fedgraph.attacks.scores import denominator
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.experiment.config import load

GENERATED: dict[str, Any] = {
    "data": "synthetic-citation",
    "dataset": {"nodes": 200, "features": 40},
    "evaluation": "in_band",
    "rounds": 5,
}


@cache
def made(policy: str = "plaintext", planted: bool = False, *changes: str) -> FinishedRun:
    return attacked.made(GENERATED, policy, *changes, plays=playing if planted else None)


def test_i1_positive_scores_are_fractions_of_the_number_of_test_nodes() -> None:
    score = judged(made("plaintext", False, "rounds=20"), ScoredSizes())
    assert score.value == 1
    assert score.leaks


def test_i1_negative_one_score_of_all_is_blind() -> None:
    with pytest.raises(Blind, match="masked"):
        judged(made("masked"), ScoredSizes())
    with pytest.raises(Blind, match="no denominator"):
        judged(made("masked"), ScoredSizes(), aim="residual")


@pytest.mark.parametrize("attack", [ScoredSizes(), ConstantAnswers(), CountedScores()])
def test_negative_where_no_score_leaves_an_owner(attack: Attack) -> None:
    case = made("plaintext", True, "evaluation=at_home")
    assert not {"metrics", "scores"} & set(case.transcript.public["channels"])
    audited = grid.audit(
        load(None, {**GENERATED, "evaluation": "at_home"}, []), ["plaintext"], [type(attack)]
    )
    assert {cell["outcome"] for cell in audited.cells} == {"blind"}


def test_denominators_by_hand() -> None:
    exact = np.array([3 / 7, 5 / 7], dtype=np.float32)
    assert denominator(exact) == 7
    assert denominator(exact + 0.01) != 7
    assert denominator(np.zeros(3)) == 0


def test_i2_positive_planted_models_are_scored_at_the_class_shares() -> None:
    score = judged(made("plaintext", True), ConstantAnswers())
    assert score.value == 1
    assert score.leaks


def test_i2_negative_an_honest_servers_scores_say_no_share() -> None:
    with pytest.raises(Blind, match="no class could be planted"):
        judged(made(), ConstantAnswers())


def test_i2_residual_under_masks_the_mean_share_is_exact() -> None:
    case = made("masked", True)
    with pytest.raises(Blind, match="masked"):
        judged(case, ConstantAnswers())
    assert judged(case, ConstantAnswers(), aim="residual").value > 0.999


def test_i3_positive_exact_counts_are_the_owners_classes() -> None:
    score = judged(made(), CountedScores())
    assert score.value > 0.999
    assert score.leaks


def test_i3_residual_under_masks_the_shares_of_all_are_exact() -> None:
    with pytest.raises(Blind, match="masked"):
        judged(made("masked"), CountedScores())
    assert judged(made("masked"), CountedScores(), aim="residual").value > 0.999


def test_i3_negative_under_noise_for_one_item_the_shares_are_blurred() -> None:
    case = made(
        "distributed_dp",
        False,
        "algorithm=fedridge",
        "training.second_moments=own",
        "epsilon=0.2",
        "unit=node",
        "rounds=1",
    )
    assert case.transcript.public["channels"]["scores"]["unit"] == "node"
    with pytest.raises(Blind, match="masked"):
        judged(case, CountedScores())
    assert judged(case, CountedScores(), aim="residual").value < 0.95


def test_i3_negative_a_clients_budget_counts_nothing() -> None:
    case = made("distributed_dp", False, "algorithm=fedavg", "epsilon=8", "unit=client", "rounds=1")
    with pytest.raises(Blind, match="no channel 'scores'"):
        judged(case, CountedScores())


def test_planting_leaves_training_as_it_was() -> None:
    honest, planted = made(), made("plaintext", True)
    broadcast = [
        [seen.values[BIAS].tolist() for seen in case.transcript.view("server").asked("update")]
        for case in (honest, planted)
    ]
    assert broadcast[0] == broadcast[1]


def test_the_grid_runs_them_where_scores_are_sent() -> None:
    experiment = load(None, {**GENERATED, "policy": "plaintext", "rounds": 4}, [])
    chosen = choices.choose(["scores"])
    assert choices.readers(experiment, chosen) == chosen
    assert choices.readers(load(None, {**GENERATED, "evaluation": "referee"}, []), chosen) == []
