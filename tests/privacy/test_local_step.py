"""Noisy training steps: clip, coins, noise, and what they are charged."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from opacus.optimizers import DPOptimizer
from scipy.stats import binom

import secure_fedgraph as sfg
from secure_fedgraph.core.accounting.events import OccurringGaussian, SampledGaussian
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy import dp_sgd
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training, secret_coins
from secure_fedgraph.privacy.spent import spent


def steps(records: torch.Tensor, how: PrivateSteps, learning_rate: float = 1.0) -> torch.Tensor:
    """Where a parameter at zero goes, each record pulling with its own row."""
    p = torch.nn.Parameter(torch.zeros(records.shape[1]))
    optimizer = torch.optim.SGD([p], lr=learning_rate)
    Training(how, "zero-out").run(optimizer, {"p": p}, len(records), lambda chosen: {"p": records[chosen]})
    return p.detach()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zero:
        total_variation = 0.0

        def draw(self, size: int) -> np.ndarray:
            return np.zeros(size, dtype=np.int32)

    monkeypatch.setattr(dp_sgd, "rounded_gaussian", lambda sigma: Zero())


def test_without_noise_it_is_opacus(silent):
    records = (
        torch.randn(7, 30, generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 1, 7)[:, None]
    )
    mine = steps(records, PrivateSteps(noise=1e-3, clip=1.0, rate=1.0, steps=1))
    p = torch.nn.Parameter(torch.zeros(30))
    theirs = DPOptimizer(
        torch.optim.SGD([p], lr=1.0), noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=7
    )
    p.grad_sample = records
    theirs.step()
    # a grid of 1e-3 / 4096, rounded towards zero, seven times over seven records
    assert mine == pytest.approx(p.detach(), abs=1e-6)
    assert not torch.equal(mine, torch.zeros(30))


def test_the_noise_is_on_every_step_also_without_records():
    how = PrivateSteps(noise=3.0, clip=0.5, rate=0.25, steps=1)
    drawn = steps(torch.zeros(8, 20_000), how)
    # 3 * 0.5 on the sum, by an expected batch of two; 20,000 draws: half a per cent
    assert drawn.std() == pytest.approx(0.75, rel=0.03)
    assert steps(torch.zeros(8, 20_000), replace(how, steps=4)).std() == pytest.approx(1.5, rel=0.03)


def test_no_seed_repeats_coins_or_noise():
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        np.random.seed(3)  # noqa: NPY002
        how = PrivateSteps(noise=1.0, rate=0.5, steps=1)
        found.append((secret_coins(400, 0.5).tolist(), steps(torch.zeros(4, 200), how).tolist()))
    assert found[0][0] != found[1][0] and found[0][1] != found[1][1]


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
def test_coins(rate):
    count = sum(len(secret_coins(1000, rate)) for _ in range(50))
    low, high = binom.interval(1 - 1e-6, 50_000, rate)
    assert low <= count <= high
    assert secret_coins(1000, 1.0).tolist() == list(range(1000))


def test_what_is_charged():
    how = PrivateSteps(noise=2.0, rate=0.1, steps=7)
    node, drawn = how.events(43, "zero-out", 1000)
    assert node == OccurringGaussian(2.0, 0.1, 7, 43)
    assert 0 < drawn.total_variation < 1e-15
    graph, _ = replace(how, unit="graph").events(1, "replace", 10)
    assert graph == SampledGaussian(2.0, 0.1, 7, "replace")


def test_steps_are_owed_until_they_are_paid_and_only_where_there_were_some():
    training = Training(PrivateSteps(noise=2.0, steps=1), "zero-out")
    assert training.owed() == {}
    p = torch.nn.Parameter(torch.zeros(2))
    training.run(torch.optim.SGD([p], lr=1.0), {"p": p}, 3, lambda chosen: {"p": torch.zeros(len(chosen), 2)})
    assert len(training.owed()["node"]) == 2
    resumed = Training(training.how, "zero-out")
    resumed.take_over(training.to_text())
    assert resumed.owed() == training.owed()
    training.paid()
    assert training.owed() == {"node": ()}
    resumed.take_over(training.to_text())
    assert resumed.owed() == {"node": ()}
    with pytest.raises(BadInput):
        resumed.take_over("{}")


SMALL = {"hidden": (8,), "fanout": (2,), "crowd": 8}


def private(policy: sfg.policies.Policy, **settings: object) -> sfg.policies.Policy:
    return replace(policy, steps=PrivateSteps(**{"noise": 4.0, "rate": 0.2, "steps": 3, **settings}))


class TestRuns:
    @pytest.mark.parametrize("policy", [sfg.policies.plaintext(), sfg.policies.masked()])
    def test_a_node_is_spoken_for_and_nobody_else(self, federation, policy):
        made = sfg.train(sfg.FedAvg(**SMALL), federation, private(policy), rounds=4)
        assert 0 < made.privacy("node")["epsilon"] < 100
        assert made.privacy("client")["epsilon"] == "inf"
        one = spent(made.charges[:1], 1e-5)["node"]["server"].epsilon
        assert one < spent(made.charges, 1e-5)["node"]["server"].epsilon
        assert {c.steps["node"][0] for c in made.charges} == {OccurringGaussian(4.0, 0.2, 3, 1 + 2 + 8)}

    def test_metrics_are_not_made_by_steps(self, federation):
        made = sfg.train(
            sfg.FedAvg(**SMALL), federation, private(sfg.policies.masked()), rounds=1, evaluation="in_band"
        )
        assert made.privacy("node")["epsilon"] == "inf"
        assert "metrics" in made.privacy("node")["reason"]

    def test_whole_graphs(self):
        sets = sfg.federate("synthetic-molecules", clients=2, partition="random", graphs=40)
        gin = {"network": "gin", "hidden": (8, 8), "fanout": (1, 1)}
        policy = private(sfg.policies.masked(), unit="graph")
        made = sfg.train(sfg.FedAvg(**gin), sets, policy, rounds=2)
        assert 0 < made.privacy("graph")["epsilon"] < 100
        with pytest.raises(BadInput, match="'node'"):
            sfg.train(sfg.FedAvg(**gin), sets, private(sfg.policies.masked()), rounds=1)

    def test_unequal_fanouts(self, federation):
        with pytest.raises(BadInput, match="give equal numbers"):
            sfg.train(
                sfg.FedAvg(hidden=(4, 4), fanout=(3, 2)),
                federation,
                private(sfg.policies.plaintext()),
                rounds=1,
            )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": 0}, "steps.noise = 0: give a positive number"),
        ({"noise": 1.0, "clip": math.inf}, "steps.clip = inf"),
        ({"noise": 1.0, "rate": 0}, "steps.rate = 0"),
        ({"noise": 1.0, "rate": 1.1}, "steps.rate = 1.1"),
        ({"noise": 1.0, "steps": 0}, "steps.steps = 0: give 1 or more"),
        ({"noise": 1.0, "unit": "client"}, "steps.unit = 'client': use one of"),
    ],
)
def test_settings_that_are_none(settings, words):
    with pytest.raises(BadInput, match=words):
        PrivateSteps(**settings)
