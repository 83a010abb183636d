"""The controls of A3: every node of a batch, from the first layer with a ReLU behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attacked import judged, made, settings_of

from secure_fedgraph.attacks import Blind, ReluBatch
from secure_fedgraph.attacks.weights.relu_batch import FirstLayer, recover

GENERATED: dict[str, Any] = {
    "data": "synthetic-citation",
    "dataset": {"nodes": 300, "features": 600},
    "protection": {"norm": 1.0, "multiplier": 10.0},
}
TWO_NODES = [*settings_of(ReluBatch.controls[1]), "training.share=0.03"]
A3 = ReluBatch(4.0)


def layer(nodes: int, units: int, inputs: int, seed: int = 0, *, words: bool = False) -> FirstLayer:
    """A step on dense features, kept in single precision, whose gradients are zero where ReLU is."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(nodes, inputs)) if not words else (rng.random((nodes, inputs)) < 0.1).astype(float)
    weight, bias = rng.normal(size=(units, inputs)) / inputs**0.5, 0.1 * rng.normal(size=units)
    weight, bias = weight.astype(np.float32).astype(float), bias.astype(np.float32).astype(float)
    gradients = rng.normal(size=(nodes, units)) * (x @ weight.T + bias > 0)
    after, after_bias = (
        (part + step).astype(np.float32).astype(float)
        for part, step in ((weight, gradients.T @ x), (bias, gradients.sum(0)))
    )
    made = FirstLayer(after - weight, after_bias - bias, weight, bias)
    object.__setattr__(made, "true", x)
    return made


def off(made: FirstLayer, rows: np.ndarray) -> float:
    true = made.true  # type: ignore[attr-defined]
    return float(max(np.abs(rows - row).max(1).min() for row in true))


@pytest.mark.parametrize("nodes", [1, 2, 5, 10])
def test_dense_rows_by_the_zeros_of_relu_alone(nodes: int) -> None:
    made = layer(nodes, 96, 40)
    found = recover(made, 10.0)
    assert found.stopped is None
    assert found.rows.shape == (nodes, 40)
    assert off(made, found.rows) < 1e-3


def test_without_zeros_dense_rows_are_not_recovered() -> None:
    made = layer(6, 96, 40)
    rng = np.random.default_rng(3)
    gradients = rng.normal(size=(6, 96))
    true = made.true  # type: ignore[attr-defined]
    linear = FirstLayer(gradients.T @ true, gradients.sum(0), made.weight, made.bias)
    assert np.isnan(recover(linear, 1.0).rows).any()


def test_words_by_their_own_zeros() -> None:
    made = layer(24, 32, 300, words=True)
    assert off(made, recover(made, 10.0).rows) < 1e-3


def test_as_many_nodes_as_units_leave_nothing_to_search_in() -> None:
    found = recover(layer(40, 32, 300, words=True), 5.0)
    assert np.isnan(found.rows).all()
    assert found.stopped is None


def test_positive_every_node_of_fedsages_step() -> None:
    score = judged(made(GENERATED, "plaintext", *TWO_NODES), A3)
    assert score.details["asked_for"] >= 10
    assert score.value >= 0.9
    assert score.leaks
    assert score.baseline < 0.1


def test_positive_every_node_of_fedegos_reduction() -> None:
    of_fedego = {"algorithm": "fedego", "dataset": {"nodes": 600, "features": 600}}
    training = {
        "optimizer": "sgd",
        "learning_rate": 1.0,
        "epochs": 1,
        "share": 0.01,
        "batch": 4,
        "fanout": [2, 2],
        "hidden": [128, 128],
    }
    more = {"training": training, "rounds": 1, "split": {"local_tests": 20}}
    score = judged(made({**GENERATED, **of_fedego, **more}, "plaintext"), A3)
    assert score.value >= 0.6
    assert score.leaks


@pytest.mark.parametrize("policy", ["masked", "homomorphic"])
def test_negative_no_single_owner_can_be_read(policy: str) -> None:
    with pytest.raises(Blind, match="a3-relu-batch: every upload of channel 'update' is"):
        judged(made(GENERATED, policy, *TWO_NODES), A3)


@pytest.mark.parametrize(
    ("policy", "changes"),
    [("local_dp", TWO_NODES), ("plaintext", ["rounds=1"])],
    ids=["noise", "an epoch of Adam"],
)
def test_negative_noise_and_an_epoch_of_adam_leave_nothing(policy: str, changes: list[str]) -> None:
    score = judged(made(GENERATED, policy, *changes), A3)
    assert score.value == 0.0
    assert not score.leaks


def test_residual_the_masked_sum_is_a_larger_batch_of_everybodys_nodes() -> None:
    score = judged(made(GENERATED, "masked", *TWO_NODES, "training.hidden=[512,32]"), A3, aim="residual")
    assert score.value >= 0.7
    assert score.leaks


def test_another_network_leaves_it_blind() -> None:
    gin = {"algorithm": "gin-fedavg", "data": "synthetic-molecules", "dataset": {"graphs": 40}, "clients": 3}
    with pytest.raises(Blind, match="no first layer with a bias that reads the features of single nodes"):
        judged(made({**GENERATED, **gin}, "plaintext", "rounds=1"), A3)
