"""A user's own network under a node's budget: each node goes alone through a copy; failures stay there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, GATConv, GCNConv

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedsgd.heads.graph_sage import OwnModelHead
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.schema import Schema

SCHEMA = Schema(features=5, classes=3)


class Attention(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = GATConv(features, 4, heads=2), GCNConv(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


class Mixing(Attention):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        self.norm = BatchNorm(classes)


class Frozen(Attention):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        self.last.bias.requires_grad_(False)


class Weighted(Attention):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index)


def graph() -> Data:
    draw = torch.Generator().manual_seed(0)
    links = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    return Data(x=torch.randn(6, 5, generator=draw), y=torch.tensor([0, 2, 1, 1, 0, 2]), edge_index=links)


def gradients(kind: Callable[..., nn.Module], given: Data, nodes: list[int]) -> Tensor:
    head = OwnModelHead(kind)
    found = head.gradients(head.init(SCHEMA, 0), given, torch.tensor(nodes, dtype=torch.long), SCHEMA)
    return torch.cat([value.flatten(1) for value in found.values()], dim=1)


def test_a_gradient_is_the_same_bits_whoever_else_is_there_and_with_any_links() -> None:
    given = graph()
    whole = gradients(Attention, given, list(range(6)))
    assert whole.norm(dim=1).min() > 0
    given.edge_index = given.edge_index[:, :0]
    for node in range(6):
        assert torch.equal(gradients(Attention, given, [node])[0], whole[node])


@pytest.mark.parametrize(
    ("kind", "named"), [(Mixing, "norm"), (Frozen, "last.bias"), (Weighted, "edge_weight")]
)
def test_models_without_a_record_of_one_node_are_refused(kind: type[nn.Module], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        OwnModelHead(kind).check(replace(SCHEMA, edge_weight=True))


def test_the_form_is_taken_unless_settings_are_of_local_training() -> None:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=300, features=24, classes=3)
    budget = sfg.Budget(8.0, 1e-5, "node")
    with pytest.warns(FormWarning, match="one sum over all owners"):
        run = sfg.train(sfg.FedAvg(model=Attention), federation, "distributed_dp", budget=budget, rounds=2)
    assert run.algorithm.name == "fedsage-steps" and run.algorithm.made_with()["model"] is Attention
    assert 0 < float(run.privacy()["node"]["epsilon"]) <= 8
    by_hand = sfg.FedAvg(model=Attention, epochs=2)
    assert by_hand.on_sums("node") is by_hand
