"""One gradient a record: against a loop over records, and none that another record moves."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from opacus import GradSampleModule
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, SAGEConv, global_add_pool

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.packing import pack, select_graphs
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.molecules import GraphNet
from secure_fedgraph.models.parameters import glorot
from secure_fedgraph.models.per_record import (
    graph_gradients,
    linear_graph_gradients,
    tree_factors,
    tree_gradients,
)
from secure_fedgraph.models.user_models import seeded


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def sage() -> GraphSage:
    model = GraphSage(5, 3, (4, 6))
    glorot(model, 1)
    return model


TREES = torch.tensor([[0, 1, 2, 3, -1, 4, 0], [3, 3, -1, 0, 1, -1, -1], [2, -1, -1, -1, -1, -1, -1]])
ANSWERS = torch.tensor([0, 2, 1])


@pytest.mark.parametrize("shared", [False, True])
def test_trees_against_a_loop(sage, shared):
    if shared:
        sage.layers[0].neighbour.weight = sage.layers[0].own.weight
    x = drawn(6, 5)
    found = tree_gradients(sage, x, TREES, ANSWERS)
    for record in range(3):
        sage.zero_grad()
        row = TREES[record : record + 1]
        values = x[row.clamp(min=0)] * (row >= 0).unsqueeze(-1)
        F.cross_entropy(sage.forward_positions(values, row >= 0), ANSWERS[record : record + 1]).backward()
        for name, p in sage.named_parameters():
            assert found[name][record] == pytest.approx(p.grad, abs=1e-6), name


def test_a_tree_moves_its_own_gradient_alone(sage):
    x = drawn(6, 5)
    before = tree_gradients(sage, x, TREES, ANSWERS)
    x[4] += 1  # in the first tree only
    after = tree_gradients(sage, x, TREES, ANSWERS)
    moved = torch.stack([(after[n] - before[n]).flatten(1).abs().max(1).values for n in before]).amax(0)
    assert moved[0] > 1e-4 and moved[1:].tolist() == [0, 0]


def test_only_the_first_weights_of_a_graphsage_stay_factors(sage):
    found = tree_factors(sage, drawn(6, 5), TREES, ANSWERS)
    assert {name for name, g in found.items() if isinstance(g, tuple)} == {
        "layers.0.own.weight",
        "layers.0.neighbour.weight",
    }
    assert list(found) == [name for name, _ in sage.named_parameters()]


def mixing(model: GraphSage) -> None:
    """A subclass elsewhere, in which a record's scores depend on who else is in the batch."""

    def forward_positions(self: GraphSage, values: torch.Tensor, filled: torch.Tensor) -> torch.Tensor:
        scores = GraphSage.forward_positions(self, values, filled)
        return scores + scores.mean(0)

    model.__class__ = type("Mixing", (GraphSage,), {"forward_positions": forward_positions})


@pytest.mark.parametrize("replace", [mixing])
def test_no_tree_moves_another_through_a_part_of_somebodys_own(sage, replace):
    replace(sage)
    x = drawn(6, 5)
    before = tree_factors(sage, x, TREES, ANSWERS)
    x[4] *= 1e4  # in the first tree only
    after = tree_factors(sage, x, TREES, ANSWERS)
    for name, g in before.items():
        assert torch.equal(g[1:], after[name][1:]), name


def test_a_step_leaves_no_gradient_and_no_hook_in_the_model(sage):
    tree_factors(sage, drawn(6, 5), TREES, ANSWERS)
    assert all(p.grad is None and p.requires_grad for p in sage.parameters())
    assert not any(layer._forward_hooks for layer in sage.modules())


def test_means_are_over_those_who_are_there(sage):
    x = drawn(6, 5)
    one, two = torch.tensor([[0, 1, -1, 2, -1, -1, -1]]), torch.tensor([[0, 1, 1, 2, -1, 2, -1]])
    given = [(x[t.clamp(min=0)] * (t >= 0).unsqueeze(-1), t >= 0) for t in (one, two)]
    scores = [sage.forward_positions(*pair).detach() for pair in given]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_positions_that_are_no_tree(sage):
    with pytest.raises(BadInput, match="6 positions are no tree of 2 levels"):
        sage.forward_positions(torch.zeros(1, 6, 5), torch.ones(1, 6, dtype=torch.bool))


def test_rows_of_a_whole_graph_are_no_records():
    class Whole(nn.Module):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return x

    with pytest.raises(BadInput, match=r"training\.network=sage"):
        tree_gradients(Whole(), drawn(6, 5), TREES, ANSWERS)


def graphs() -> list[Data]:
    sizes = (2, 5, 1, 4)
    return [
        Data(
            x=drawn(n, 3, seed=n),
            edge_index=torch.tensor([list(range(n - 1)), [i + 1 for i in range(n - 1)]], dtype=torch.long),
            y=torch.tensor([n % 2]),
        )
        for n in sizes
    ]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_against_opacus():
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, packed: Data) -> torch.Tensor:
            return self.layers(packed.x)

    packed = Data(x=drawn(6, 3), y=torch.arange(6) % 2, graph=torch.arange(6))
    mine = linear_graph_gradients(Flat(), packed)
    theirs = GradSampleModule(layers, loss_reduction="sum")
    F.cross_entropy(theirs(packed.x), packed.y, reduction="sum").backward()
    for name, p in layers.named_parameters():
        assert mine[f"layers.{name}"] == pytest.approx(p.grad_sample, abs=1e-6)


class Attention(nn.Module):
    """Parameters of many kinds; it scales by the largest value of a batch, if that is large."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
        self.attend, self.norm, self.last = GATConv(4, 4), nn.LayerNorm(4), SAGEConv(4, 2)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = x / x.abs().max().clamp(min=3.0)
        made = self.norm(self.attend(self.enter(x), edge_index)).relu()
        return global_add_pool(self.last(made, edge_index), batch)


class Counting(Attention):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        self.get_buffer("seen").add_(1.0)
        return super().forward(x, edge_index, batch)


def test_a_buffer_that_changes_is_refused_by_name():
    with pytest.raises(BadInput, match="'seen' of model Counting changes"):
        graph_gradients(Counting(), pack(graphs()))


def test_nobody_can_repeat_what_is_dropped_and_nobody_elses_draws_change():
    class Dropping(Attention):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
            return super().forward(F.dropout(x, 0.5), edge_index, batch)

    model, packed, found, after = Dropping(), pack(graphs()), [], set()
    for _ in range(2):
        torch.manual_seed(0)
        found.append(graph_gradients(model, packed)["attend.bias"])
        after.add(float(torch.rand(1)))
    torch.manual_seed(0)
    assert not torch.equal(*found) and after == {float(torch.rand(1))}


class Twice(nn.Module):
    """One layer under two names, and a weight that another layer shares."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.again, self.shares, self.last = self.first, nn.Linear(3, 3), nn.Linear(3, 2)
        self.shares.weight = self.first.weight

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.shares(self.again(self.first(x)).relu()).relu()
        return global_add_pool(self.last(x), batch)


@pytest.mark.parametrize("make", [Attention, Twice, lambda: Gin(3, 2, hidden=4, layers=2, dropout=0.0)])
def test_graphs_against_a_loop(make):
    with seeded(0):
        model = make()
    packed = pack(graphs())
    if isinstance(model, Attention):
        packed.x[-1] = 50.0  # one graph would scale all others
    if isinstance(model, Gin):
        model.initialise(3)
    found, tolerance = graph_gradients(model, packed), 1e-5 if isinstance(model, Gin) else 1e-6
    assert found.keys() == dict(model.named_parameters()).keys()
    for number in range(4):
        one = select_graphs(packed, torch.tensor([number]))
        model.zero_grad()
        given = (one,) if isinstance(model, Gin) else (one.x, one.edge_index, one.graph)
        F.cross_entropy(model(*given), one.y).backward()
        for name, p in model.named_parameters():
            assert found[name][number] == pytest.approx(p.grad, abs=tolerance), name


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_a_changed_network_of_ours_has_the_same_gradients(kind):
    model = GraphNet(3, 2, (4, 4), kind, readout=4)
    glorot(model, 0)
    whole = graph_gradients(model, pack(graphs()))
    model.head = nn.Sequential(model.head, nn.Identity())
    renamed = graph_gradients(model, pack(graphs()))
    for name, value in whole.items():
        assert renamed[name.replace("head.", "head.0.")] == pytest.approx(value, abs=1e-5), name


def test_layers_whose_records_are_not_known():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.BatchNorm1d(3)

    with pytest.raises(BadInput, match="LayerNorm or GroupNorm"):
        graph_gradients(Mixed(), pack(graphs()))
