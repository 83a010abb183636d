"""The three controls of A2: one training node's features, from the step that was taken on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attacked import guessed, judged, made, score_of, settings_of

from secure_fedgraph.attacks import Blind, Guess, SingleSample
from secure_fedgraph.attacks.weights import ALL

GENERATED: dict[str, Any] = {
    "data": "synthetic-citation",
    "dataset": {"nodes": 300, "features": 600},
    "protection": {"norm": 1.0, "multiplier": 10.0},
}
ONE_LAYER, TWO_LAYERS = map(settings_of, SingleSample.controls)
A2 = SingleSample()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_positive_every_owners_node_and_its_neighbours_mean_exactly(seed: int) -> None:
    score = judged(made(GENERATED, "plaintext", *ONE_LAYER, f"seed={seed}"), A2)
    assert score.details["asked_for"] == 3
    assert score.value == 1.0  # to 1e-6 in every word
    assert score.baseline < 0.1
    assert score.verdict == "exact"
    assert score.details["neighbour_means_right"] == score.details["neighbour_means"] == 3


def test_with_two_layers_the_neighbours_mix_in_and_most_owners_are_exact_all_the_same() -> None:
    scores = [judged(made(GENERATED, "plaintext", *TWO_LAYERS, f"seed={seed}"), A2) for seed in range(3)]
    exact = sum(score.details["exact_rows"] for score in scores)
    assert 5 <= exact <= 9
    assert any(score.leaks for score in scores)


def test_the_judge_refuses_another_nodes_mean() -> None:
    case = made(GENERATED, "plaintext", *ONE_LAYER)
    guess = guessed(case, A2)
    swapped = {t: np.stack([v[0], v[1] + 0.2]) for t, v in guess.values.items()}
    moved = Guess(guess.about, swapped, guess.targets, guess.messages)
    assert score_of(moved, case).details["neighbour_means_right"] == 0


@pytest.mark.parametrize(
    ("policy", "more"),
    [("plaintext", "training.share=1.0"), ("local_dp", "rounds=1")],
    ids=["whole batch", "noise"],
)
def test_negative_a_whole_batch_and_noise_leave_nothing(policy: str, more: str) -> None:
    score = judged(made(GENERATED, policy, *ONE_LAYER, more), A2)
    assert score.value == 0.0
    assert not score.leaks


@pytest.mark.parametrize("policy", ["masked", "homomorphic"])
def test_negative_no_single_owner_can_be_read(policy: str) -> None:
    sentence = rf"a2-single-sample: every upload of channel 'update' is .* under policy {policy}"
    with pytest.raises(Blind, match=sentence):
        judged(made(GENERATED, policy, *ONE_LAYER), A2)


@pytest.mark.parametrize("policy", ["plaintext", "masked", "homomorphic"])
def test_residual_the_sum_is_taken_apart_into_the_owners_nodes(policy: str) -> None:
    case = made(GENERATED, policy, *ONE_LAYER)
    assert guessed(case, A2, aim="residual").values[ALL].shape == (3, 600)
    score = judged(case, A2, aim="residual")
    assert (score.value, score.details["distinct_nodes"]) == (1.0, 3.0)


def test_residual_sums_of_many_nodes_are_not_taken_apart() -> None:
    score = judged(made(GENERATED, "masked", *ONE_LAYER, "training.share=1.0"), A2, aim="residual")
    assert score.details["found"] == 0


@pytest.mark.slow
@pytest.mark.needs_data("planetoid")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_cora_every_node_is_exact(seed: int) -> None:
    base = {"data": "cora"}
    assert judged(made(base, "plaintext", *ONE_LAYER, f"seed={seed}"), A2).value == 1.0
    assert judged(made(base, "masked", *ONE_LAYER, f"seed={seed}"), A2, aim="residual").value == 1.0
