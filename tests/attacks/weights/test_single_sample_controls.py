"""The three controls of A2: one training node's features, from the step that was taken on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Attack, Blind, Guess, Knowledge, SingleSample
from secure_fedgraph.attacks.attack import Control
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.audits import scoring
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.protocol.transcript import everything

GENERATED: dict[str, Any] = {
    "data": "synthetic-citation",
    "dataset": {"nodes": 300, "features": 600},
    "protection": {"norm": 1.0, "multiplier": 10.0},
}
ONE_LAYER, TWO_LAYERS = SingleSample.controls


def go(base: dict[str, Any], policy: str, control: Control, *more: str) -> sfg.Run:
    changes = [f"{key}={value}" for key, value in control.settings.items()]
    return execute(load(None, {**base, "policy": policy}, [*changes, *more]), None, keep=everything)


def judged(run: sfg.Run, aim: str = "run", attack: Attack | None = None) -> scoring.Score:
    guess: Guess = getattr(attack or SingleSample(), aim)(run.transcript.view("server"), Knowledge())
    return JUDGES[guess.about](guess, FinishedRun.of(run, 0)).score


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_positive_every_owners_node_exactly(seed: int) -> None:
    score = judged(go(GENERATED, "plaintext", ONE_LAYER, f"seed={seed}"))
    assert score.details["asked_for"] == 3
    assert score.value == 1.0  # to 1e-6 in every word
    assert score.baseline < 0.1
    assert score.verdict == "exact"


def test_with_two_layers_the_neighbours_mix_in_and_most_owners_are_exact_all_the_same() -> None:
    scores = [judged(go(GENERATED, "plaintext", TWO_LAYERS, f"seed={seed}")) for seed in range(3)]
    exact = sum(score.details["exact_rows"] for score in scores)
    assert 5 <= exact <= 9
    assert any(score.leaks for score in scores)


def test_positive_the_neighbours_mean_apart_from_the_node() -> None:
    score = judged(go(GENERATED, "plaintext", ONE_LAYER))
    assert score.details["neighbour_means_right"] == score.details["neighbour_means"] == 3


def test_the_judge_refuses_another_nodes_mean() -> None:
    run = go(GENERATED, "plaintext", ONE_LAYER)
    guess = SingleSample().run(run.transcript.view("server"), Knowledge())
    swapped = {t: np.stack([v[0], v[1] + 0.2]) for t, v in guess.values.items()}
    moved = Guess(guess.about, swapped, guess.targets, guess.messages)
    assert JUDGES[guess.about](moved, FinishedRun.of(run, 0)).score.details["neighbour_means_right"] == 0


def test_a_whole_batch_is_no_single_node() -> None:
    score = judged(go(GENERATED, "plaintext", ONE_LAYER, "training.share=1.0"))
    assert score.value == 0.0
    assert not score.leaks


@pytest.mark.parametrize("policy", ["masked", "homomorphic"])
def test_negative_no_single_owner_can_be_read(policy: str) -> None:
    run = go(GENERATED, policy, ONE_LAYER)
    with pytest.raises(
        Blind, match=rf"a2-single-sample: every upload of channel 'update' is .* under policy {policy}"
    ):
        judged(run)


def test_negative_noise_leaves_nothing() -> None:
    score = judged(go(GENERATED, "local_dp", ONE_LAYER))
    assert not score.leaks
    assert score.value == 0.0


@pytest.mark.parametrize("policy", ["plaintext", "masked", "homomorphic"])
def test_residual_the_sum_is_taken_apart_into_the_owners_nodes(policy: str) -> None:
    run = go(GENERATED, policy, ONE_LAYER)
    guess = SingleSample().residual(run.transcript.view("server"), Knowledge())
    assert guess.values[ALL].shape == (3, 600)
    score = judged(run, "residual")
    assert (score.value, score.details["distinct_nodes"]) == (1.0, 3.0)


def test_residual_sums_of_many_nodes_are_not_taken_apart() -> None:
    score = judged(go(GENERATED, "masked", ONE_LAYER, "training.share=1.0"), "residual")
    assert score.details["found"] == 0


@pytest.mark.slow
@pytest.mark.needs_data("planetoid")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_cora_every_node_is_exact(seed: int) -> None:
    base = {"data": "cora"}
    assert judged(go(base, "plaintext", ONE_LAYER, f"seed={seed}")).value == 1.0
    assert judged(go(base, "masked", ONE_LAYER, f"seed={seed}"), "residual").value == 1.0
