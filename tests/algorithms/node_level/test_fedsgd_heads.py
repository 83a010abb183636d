"""Heads of nodes and of whole graphs: one gradient a record against automatic differentiation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from secure_fedgraph.algorithms.fedsgd.heads.perceptron import (
    LAYERS,
    GraphPerceptron,
    NodePerceptron,
    gradients_of,
)
from secure_fedgraph.algorithms.fedsgd.settings import GraphSgdSettings, SgdSettings
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.targets import slopes

SCHEMA = Schema(features=5, classes=3)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def one_graph() -> Data:
    links = torch.tensor([[0, 1, 1, 2, 3, 4, 2, 4], [1, 0, 2, 1, 4, 3, 4, 2]])
    return Data(x=drawn(7, 5), y=torch.tensor([0, 2, 1, 1, 0, 2, 0]), edge_index=links)


def whole_graphs() -> Data:
    """Four of several sizes: paths, a single node, and a triangle with a tail."""
    made = []
    for number, nodes in enumerate((2, 5, 1, 4)):
        path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
        links = torch.cat([path, path.flip(0)], dim=1)
        if nodes == 4:
            links = torch.cat([links, torch.tensor([[0, 2], [2, 0]])], dim=1)
        label = F.one_hot(drawn(nodes, 5, seed=nodes).argmax(1), 5).float()
        made.append(Data(x=label, edge_index=links, y=torch.tensor([number % 2])))
    return pack(made)


@pytest.fixture(params=["node", "graph"])
def made(request):
    """A head, its data, weights, the schema, and how many records there are."""
    if request.param == "node":
        head, given, schema, records = NodePerceptron(SgdSettings(hidden=4)), one_graph(), SCHEMA, 7
    else:
        schema, records = Schema(features=5, classes=3, kind="graph"), 4
        head, given = GraphPerceptron(GraphSgdSettings(hidden=4)), whole_graphs()
    w = {name: drawn(*v.shape, seed=i) / 3 for i, (name, v) in enumerate(head.init(schema, 0).items())}
    return head, given, w, schema, records


def test_gradients_against_a_loop_over_records(made) -> None:
    head, given, w, schema, _ = made
    chosen = torch.tensor([3, 0, 2])
    found, z = head.gradients(w, given, chosen, schema), head.read(given, schema)
    assert z.norm(dim=1).tolist() == pytest.approx([5.0] * len(z))
    for row, record in enumerate(chosen.tolist()):
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        hidden = (z[record] @ leaves["inner"] + leaves["inner_bias"]).relu()
        F.cross_entropy(hidden @ leaves["outer"] + leaves["outer_bias"], given.y[record]).backward()
        for name in LAYERS:
            assert torch.allclose(found[name][row], leaves[name].grad, atol=1e-4), (name, record)


def test_no_record_is_a_part_of_another_s_gradient_and_who_else_is_chosen_does_not_matter(made) -> None:
    head, given, w, schema, records = made
    before = head.gradients(w, given, torch.arange(records), schema)
    for record in range(records):
        alone = head.gradients(w, given, torch.tensor([record]), schema)
        assert all(torch.allclose(alone[name][0], before[name][record], atol=1e-6) for name in w)
    changed = 1 if schema.kind == "graph" else 3
    if schema.kind == "graph":
        given.x[given.graph == 1] = torch.eye(5)[[0, 0, 1, 2, 2]]
        given.edge_index = given.edge_index[:, ~((given.graph == 1)[given.edge_index[0]])]
    else:
        given.x[3] += 1
        given.edge_index = given.edge_index[:, :1]
    after = head.gradients(w, given, torch.arange(records), schema)
    moved = sum((after[name] - before[name]).flatten(1).abs().amax(1) for name in w)
    others = [record for record in range(records) if record != changed]
    assert moved[changed] > 1e-3 and moved[others].max() < (1e-6 if schema.kind == "graph" else 1e-30)


def test_of_no_record_there_is_no_row(made) -> None:
    head, given, w, schema, _ = made
    found = head.gradients(w, given, torch.arange(0), schema)
    assert {name: tuple(v.shape) for name, v in found.items()} == {n: (0, *v.shape) for n, v in w.items()}


def crossed(features: int, hidden: int, classes: int, scale: float) -> dict[str, torch.Tensor]:
    """A server's: half of the units stand again in another order, and two classes add them up in either.

    Their scores are equal but for rounding, which then decides what each record's gradient is.
    """
    random = torch.Generator().manual_seed(0)
    half, order = torch.randn(features, hidden // 2, generator=random), torch.randperm(hidden // 2)
    weighed = torch.randn(hidden // 2, generator=random) * scale
    outer = torch.zeros(hidden, classes)
    outer[: hidden // 2, 0], outer[hidden // 2 :, 1] = weighed, weighed[order]
    bias = torch.full((classes,), -1e30)
    bias[:2] = 0
    inner = torch.cat([half, half[:, order]], dim=1) * scale
    return dict(zip(LAYERS, (inner, torch.zeros(hidden), outer, bias), strict=True))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e8])
@pytest.mark.parametrize("classes", [3, 6, 7])
def test_no_bit_of_a_record_depends_on_which_others_there_are(classes: int, scale: float) -> None:
    random = torch.Generator().manual_seed(1)
    z = torch.nn.functional.normalize((torch.rand(69, 50, generator=random) < 0.1).float(), dim=1) * 5
    y = torch.randint(2, (69,), generator=random)
    weights = crossed(50, 64, classes, scale)
    every = gradients_of(weights, z, y, 5.0, SCHEMA)
    for kept in (torch.arange(1, 69), torch.arange(57), torch.tensor([3]), torch.randperm(69)[:40]):
        some = gradients_of(weights, z[kept], y[kept], 5.0, SCHEMA)
        assert all(torch.equal(some[name], every[name][kept]) for name in LAYERS)


@pytest.mark.parametrize("task", [Task.LABELS, Task.CLASSES])
def test_an_items_slopes_do_not_depend_on_others(task: Task) -> None:
    schema = Schema(features=2, classes=3, task=task)
    scores = torch.randn(20000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(len(scores), 3) if task == Task.LABELS else torch.zeros(len(scores), dtype=torch.long)
    whole = slopes(scores, y, schema)
    alone = [slopes(scores[i : i + 1], y[i : i + 1], schema) for i in range(2000)]
    assert torch.equal(torch.cat(alone), whole[:2000])
    for some in (5, 7, 1001, 19999):
        assert torch.equal(slopes(scores[:some], y[:some], schema), whole[:some])
