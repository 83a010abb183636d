"""Noisy steps on whole graphs by a model of a user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import global_add_pool

import secure_fedgraph as sfg
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.models.per_record import graph_gradients
from secure_fedgraph.models.user_models import seeded
from secure_fedgraph.privacy.dp_sgd import PrivateSteps

Layer = Callable[[Tensor, Tensor], Tensor]


class Net(nn.Module):
    """Two linear layers with something between them, and something after them."""

    def __init__(
        self, between: nn.Module, after: Layer | None = None, width: int = 5, classes: int = 3
    ) -> None:
        super().__init__()
        self.first, self.between, self.last = nn.Linear(width, 8), between, nn.Linear(8, classes)
        self.after = after

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        scores = self.last(global_add_pool(self.between(self.first(x)).relu(), batch))
        return scores if self.after is None else self.after(scores, batch)


STEPS = PrivateSteps(noise=2.0, rate=0.5, steps=2, unit="graph")


@pytest.fixture(scope="module")
def molecules() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=2, partition="random", seed=0, graphs=40)


def trained(model: Any, federation: sfg.Federation, **settings: Any) -> sfg.Run:
    policy = replace(sfg.policies.plaintext(), steps=STEPS)
    return sfg.train(sfg.FedAvg(model=model, **settings), federation, policy, rounds=1)


def test_a_model_of_pygs_form_takes_noisy_steps(molecules: sfg.Federation) -> None:
    width, classes = molecules.schema.features, molecules.schema.classes
    run = trained(lambda: Net(nn.Identity(), width=width, classes=classes), molecules)
    assert float(run.privacy("graph")["epsilon"]) > 0

    class Union(Net):
        def forward(self, packed: Data) -> Tensor:  # type: ignore[override]
            return super().forward(packed.x, packed.edge_index, packed.graph)

    with seeded(0):
        model = Net(nn.Identity(), width=width, classes=classes)
    union = Union(nn.Identity(), width=width, classes=classes)
    union.load_state_dict(model.state_dict())
    packed = select_graphs(molecules.owners["owner-0"], torch.arange(4))
    found, expected = graph_gradients(model, packed), graph_gradients(union, packed)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_our_gin_takes_noisy_steps(molecules: sfg.Federation) -> None:
    assert trained(None, molecules, network="gin", hidden=(8, 8)).history
