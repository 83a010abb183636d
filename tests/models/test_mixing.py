"""Before noisy steps on whole graphs: a model where one graph moves another's gradient is refused by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import LayerNorm, MeanSubtractionNorm, PairNorm, global_add_pool
from torch_geometric.utils import dropout_edge

import secure_fedgraph as sfg
from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.models.given import seeded
from secure_fedgraph.models.mixing import check_alone
from secure_fedgraph.models.molecules import GraphNet
from secure_fedgraph.models.parameters import glorot
from secure_fedgraph.models.per_record import graph_gradients
from secure_fedgraph.privacy.dp_sgd import PrivateSteps

SCHEMA = Schema(5, 3, kind="graph")
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


class Sorted(nn.Module):
    """Nodes by their first value, so that rows are no longer those of the graphs."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x[:, 0].argsort()]


class InTraining(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training else x


class Swapped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x[torch.randperm(len(x))]


def check(model: nn.Module, schema: Schema = SCHEMA) -> None:
    check_alone(model, schema)


@pytest.mark.parametrize("kind", [PairNorm, MeanSubtractionNorm, InTraining, Sorted, Swapped])
def test_what_lets_graphs_meet_is_refused_by_name(kind: type[nn.Module]) -> None:
    with seeded(0):
        model = Net(kind())
    with pytest.raises(BadInput, match=rf"Net mixes the graphs.*'between', a {kind.__name__}.*F.layer_norm"):
        check(model)


@pytest.mark.parametrize(
    "after", [lambda s, batch: s.flip(0), lambda s, batch: s - s.mean(0), lambda s, batch: s.softmax(0)]
)
def test_scores_of_other_graphs_are_refused(after: Layer) -> None:
    with pytest.raises(BadInput, match="mixes the graphs"):
        check(Net(nn.Identity(), after))


def test_weights_of_zeros_hide_nothing() -> None:
    model = Net(PairNorm())
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(BadInput, match="mixes the graphs"):
        check(model)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


class Dropping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training) * (torch.rand(len(x), 1) >= 0.2) + torch.randn_like(x)


class WithoutLinks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        source, target = dropout_edge(edge_index, 0.3, training=self.training)[0]
        h = F.dropout(self.first(x), 0.3, training=self.training)
        return self.last(global_add_pool(h.index_add(0, target, h[source]), batch))


@pytest.mark.parametrize(
    "model",
    [
        lambda: Net(nn.Identity()),
        lambda: Net(nn.LayerNorm(8, elementwise_affine=False)),
        lambda: Net(nn.Dropout(0.5)),
        lambda: Net(nn.AlphaDropout(0.5)),
        lambda: Net(Dropping()),
        lambda: Net(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))),
        WithoutLinks,
    ],
)
def test_what_keeps_graphs_apart_passes_whatever_it_drops(model: Any) -> None:
    before = torch.random.get_rng_state()
    for seed in range(3):
        with seeded(seed):
            made = model()
        check(made)
    assert torch.equal(torch.random.get_rng_state(), before)


class PerGraph(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 8), norm, nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.last(global_add_pool(self.norm(self.first(x), batch), batch))


@pytest.mark.parametrize(
    "norm", [PairNorm(), MeanSubtractionNorm(), LayerNorm(8, affine=False)], ids=["pair", "mean", "layer"]
)
def test_a_norm_over_one_graphs_own_nodes_passes(norm: nn.Module) -> None:
    check(PerGraph(norm))


class Python(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * random.random()


class Fails(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("no\nway")


def test_what_cannot_be_held_still_and_what_fails_is_said() -> None:
    with pytest.raises(BadInput, match="other scores the second time"):
        check(Net(Python()))
    with pytest.raises(BadInput, match=r"made-up graphs as noisy steps call it \(ValueError: no\)"):
        check(Net(Fails()))


@pytest.mark.parametrize("schema", [SCHEMA, replace(SCHEMA, classes=1), replace(SCHEMA, bonds=(4, 2))])
@pytest.mark.parametrize("kind", ["gin", "gcn", "sage"])
def test_our_own_networks_pass(kind: Any, schema: Schema) -> None:
    model = Gin(5, 3, 8, 2, 0.0) if kind == "gin" else GraphNet(5, 3, (8, 8), kind, readout=8)
    glorot(model, 0)
    check(model, schema)


# ---- in a run


STEPS = PrivateSteps(noise=2.0, rate=0.5, steps=2, unit="graph")


@pytest.fixture(scope="module")
def molecules() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=2, partition="random", seed=0, graphs=40)


def trained(model: Any, federation: sfg.Federation, **settings: Any) -> sfg.Run:
    policy = replace(sfg.policies.plaintext(), steps=STEPS)
    return sfg.train(sfg.FedAvg(model=model, **settings), federation, policy, rounds=1)


def test_a_run_is_refused_before_round_1(molecules: sfg.Federation) -> None:
    width, classes = molecules.schema.features, molecules.schema.classes
    with pytest.raises(BadInput, match="'between', a PairNorm"):
        trained(lambda: Net(PairNorm(), width=width, classes=classes), molecules)


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
