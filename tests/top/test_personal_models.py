"""Personal models beside the released one: in private runs, at the last round, seen by the referee alone."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.protocol.transcript import everything

KEYS = {"personal", "personal_global"}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, seed=0, nodes=300, features=24, classes=3)


def scores(algorithm: Any, federation: sfg.Federation, policy: Any, **more: Any) -> list[dict[str, float]]:
    run = sfg.train(algorithm, federation, policy, rounds=2, **more)
    return [row["accuracy"] for row in run.history]


@pytest.mark.parametrize(("algorithm", "unit"), [(sfg.FedAvg, "client"), (sfg.algorithms.FedRidge, "node")])
def test_noise_that_leaves_nothing_leaves_an_owner_what_it_has_alone(algorithm, unit, federation) -> None:
    tiny = sfg.Budget(epsilon=0.01, unit=unit)
    made = algorithm() if unit == "client" else algorithm(second_moments="sent")
    first, last = scores(made, federation, "distributed_dp", budget=tiny)
    assert not KEYS & first.keys() and last.keys() >= KEYS
    assert last["personal"] > 0.8 and last["personal_global"] > 0.55  # noise leaves a third, by chance


def test_without_noise_there_are_none(federation) -> None:
    assert not KEYS & scores(sfg.FedAvg(), federation, "masked")[-1].keys()


def test_randomised_labels_are_not_what_an_owner_learns_its_own_model_from(federation) -> None:
    labels = replace(sfg.policies.plaintext(), randomizers=(RandomisedLabels(0.01),))
    last = scores(sfg.FedAvg(), federation, labels)[-1]
    assert last["personal"] > last["local"] + 0.1


def test_nobody_but_the_referee_sees_them(federation) -> None:
    noisy = sfg.policies.distributed_dp(norm=1.0, multiplier=1.0)
    run = sfg.train(sfg.FedAvg(), federation, noisy, rounds=1, keep=everything)
    asked = {(s.sender, s.recipient) for s in run.transcript.sent if s.channel == "combined"}
    assert asked and all("referee" in both for both in asked)


class Failing(sfg.FedAvg):
    """A model of somebody's own that fails on one owner's graph."""

    def predict(self, params, graph, schema):
        if len(graph.y if graph.y is not None else ()) and graph.get("train_mask") is not None:
            raise RuntimeError("data")
        return super().predict(params, graph, schema)


def test_a_model_that_fails_ends_no_run(federation) -> None:
    noisy = sfg.policies.distributed_dp(norm=1.0, multiplier=1.0)
    run = sfg.train(Failing(), federation, noisy, rounds=1)
    scores = run.history[-1]["accuracy"]
    assert scores["own"] > 0.6
    assert not {"personal", "personal_global"} & scores.keys()  # they would be what owners have without it


class Plain(sfg.FedAvg):
    """A model of somebody's own whose scores do not depend on noise."""

    def predict(self, params, graph, schema):
        weights = torch.linspace(-1, 1, schema.features * schema.classes)
        return graph.x @ weights.reshape(schema.features, schema.classes)


class Recording(Plain):
    """The same with scores that record gradients, as those of any module without no_grad."""

    def predict(self, params, graph, schema):
        return super().predict(params, graph, schema) + torch.zeros((), requires_grad=True)


@pytest.mark.parametrize("measure", ["accuracy", "auc"])
def test_scores_that_record_gradients_give_the_same_figures(measure, federation, monkeypatch) -> None:
    monkeypatch.setattr(Plain, "metric", measure)
    noisy = sfg.policies.distributed_dp(norm=1.0, multiplier=1.0)
    rows = scores(Recording(), federation, noisy)
    assert rows == scores(Plain(), federation, noisy) and rows[-1].keys() >= KEYS


class Keeping(Plain):
    """An algorithm of somebody's own whose clients keep something that is no plain value."""

    def __init__(self, kept: Any = None) -> None:
        super().__init__()
        self.make = kept

    @sfg.FedAvg.UPDATE.answer
    def update(self, client, given):
        client.memory["kept"] = {"in": self.make()}
        return super().update(client, given)


def test_what_clients_keep_is_copied_for_the_referee_or_refused_by_name(federation) -> None:
    noisy = sfg.policies.distributed_dp(norm=1.0, multiplier=1.0)
    live = Keeping(lambda: torch.ones(1, requires_grad=True) * 2)  # no leaf, so torch does not copy it
    assert scores(live, federation, noisy) == scores(Plain(), federation, noisy)
    with pytest.raises(BadInput, match=r"^owner-\d's memory 'kept/in' is of type lock, which"):
        scores(Keeping(threading.Lock), federation, noisy)
