"""What the door and the session hold of an algorithm of a user's own, which is trusted otherwise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph import Channel, Reveal, Upload
from secure_fedgraph.models.parameters import difference

NOISE = sfg.policies.local_dp(norm=1.0, multiplier=4.0)


class Base(sfg.Algorithm):
    MEANS = Channel("means", Reveal.EACH)

    def init(self, schema: Any, seed: int) -> Any:
        return {"w": torch.zeros(200)}

    def predict(self, params: Any, graph: Any, schema: Any) -> torch.Tensor:
        return torch.zeros(graph.num_nodes, schema.classes)

    def round(self, round: Any, state: Any) -> Any:
        round.gather(self.MEANS)
        return state


class TrainsOnTests(Base):
    """Raw labels go over the referee's channel; what it keeps, or writes into the state, is trained on."""

    name = "trains-on-tests"
    TESTS = Channel("tests", Reveal.EACH, to="referee")
    kept: torch.Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, torch.Tensor] = {}

    def round(self, round: Any, state: Any) -> Any:
        round.gather(self.MEANS)
        state["w"][:1] += float(self.kept is not None) + len(self.held)
        return state

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        return Upload({"v": torch.zeros(1)})

    @TESTS.answer
    def tests(self, client: Any, given: Any) -> Upload:
        return Upload({"y": client.graph.y.float()})

    def predictions(self, state: Any, round: Any, inputs: Any, schema: Any) -> Any:
        self.kept = torch.cat([values["y"] for values in round.gather(self.TESTS).values()])
        self.held.update(kept=self.kept)
        state["w"][1 : 1 + len(self.kept)] = self.kept
        return super().predictions(state, round, inputs, schema)


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=16)


def test_what_the_referee_reads_gets_into_no_state(federation: sfg.Federation):
    run = sfg.train(TrainsOnTests(), federation, NOISE, rounds=3)
    assert math.isfinite(run.privacy()["client"]["epsilon"])
    assert not run.state["w"].any()


def test_a_model_whose_shapes_change_in_training_sends_the_shapes_that_it_was_given():
    before = {"w": torch.ones(2), "seen": torch.zeros(1)}
    assert difference({"w": torch.ones(2) * 3, "seen": torch.zeros(7)}, before)["seen"].shape == (1,)
