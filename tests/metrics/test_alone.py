"""What owners do alone: the own experts of their personal models, for owners of columns too."""

from __future__ import annotations

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.evaluation import mean
from secure_fedgraph.experiment.baselines import baselines, expected_gain
from secure_fedgraph.metrics import alone
from secure_fedgraph.models import personal


def test_the_best_alone_is_what_personal_models_are_without_the_released_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alone, "WIDE", 0)  # with few columns others are tried beside it
    federation = sfg.federate("synthetic-citation", clients=2, partition="random", seed=0)
    each = []
    for graph in federation.owners.values():
        model = personal.fit(graph, torch.zeros(len(graph.y), 4), 4)
        own = personal.believed(model, personal.Smoothed(graph), own=True)
        right = personal.scores(model, own, None).argmax(1) == graph.y
        each.append(float(right[graph.test_mask].double().mean()))
    best = baselines(federation, None, "accuracy")["alone"]["best"]
    assert best == pytest.approx(mean(each))


def test_owners_of_columns_are_scored_as_if_each_had_the_labels() -> None:
    found = [
        baselines(
            sfg.federate(
                "synthetic-citation", clients=2, partition="vertical", seed=0, split={"labels": who}
            ),
            None,
            "accuracy",
        )["alone"]
        for who in ("all", "one")
    ]
    assert found[0] == found[1]
    assert found[0]["best"] > 0.4 and found[0]["metrics"]["accuracy"] == pytest.approx(found[0]["best"])


def test_a_gain_is_expected_of_many_poor_owners_and_not_of_few_rich_ones_or_under_noise() -> None:
    rich, poor = (
        sfg.federate("synthetic-citation", clients=clients, partition="random", seed=0, nodes=2000)
        for clients in (2, 100)
    )
    assert "do not expect" in expected_gain(rich, 0.1)
    assert expected_gain(poor, 0.1) == expected_gain(poor, None) == ""
    assert "do not expect" in expected_gain(poor, 4.0)
    columns = sfg.federate("synthetic-citation", clients=2, partition="vertical", seed=0)
    assert expected_gain(columns, None) == ""
