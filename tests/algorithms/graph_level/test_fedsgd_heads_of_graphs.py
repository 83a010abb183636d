"""Heads of whole graphs: one gradient a graph against a loop, and none that another graph moves."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithms.fedsgd.heads.perceptron import GraphPerceptron
from secure_fedgraph.algorithms.fedsgd.settings import GraphSgdSettings
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import Schema

SCHEMA = Schema(features=3, classes=2, kind="graph")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def graphs() -> Data:
    """Four of several sizes: paths, a single node, and a triangle with a tail."""
    made = []
    for number, nodes in enumerate((2, 5, 1, 4)):
        path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
        links = torch.cat([path, path.flip(0)], dim=1)
        if nodes == 4:
            links = torch.cat([links, torch.tensor([[0, 2], [2, 0]])], dim=1)
        label = F.one_hot(drawn(nodes, 3, seed=nodes).argmax(1), 3).float()
        made.append(Data(x=label, edge_index=links, y=torch.tensor([number % 2])))
    return pack(made)


def head_of() -> tuple[Any, dict[str, Tensor]]:
    head = GraphPerceptron(GraphSgdSettings(hidden=4))
    return head, {
        name: drawn(*v.shape, seed=i) / 2 for i, (name, v) in enumerate(head.init(SCHEMA, 0).items())
    }


def test_a_perceptron_s_gradients_against_a_loop_over_graphs() -> None:
    head, w = head_of()
    packed, chosen = graphs(), torch.tensor([3, 1])
    found, z = head.gradients(w, packed, chosen, SCHEMA), head.read(packed, SCHEMA)
    for row, number in enumerate(chosen.tolist()):
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        hidden = (z[number] @ leaves["inner"] + leaves["inner_bias"]).relu()
        F.cross_entropy(hidden @ leaves["outer"] + leaves["outer_bias"], packed.y[number]).backward()
        for name, leaf in leaves.items():
            assert torch.allclose(found[name][row], leaf.grad, atol=1e-4), (name, number)


def test_no_graph_is_a_part_of_another_s_gradient() -> None:
    head, w = head_of()
    packed, chosen = graphs(), torch.arange(4)
    before = head.gradients(w, packed, chosen, SCHEMA)
    packed.x[packed.graph == 1] = torch.eye(3)[[0, 0, 1, 2, 2]]
    packed.edge_index = packed.edge_index[:, ~((packed.graph == 1)[packed.edge_index[0]])]
    after = head.gradients(w, packed, chosen, SCHEMA)
    moved = sum((after[name] - before[name]).flatten(1).abs().amax(1) for name in w)
    assert moved[1] > 1e-3 and moved[[0, 2, 3]].max() < 1e-6


def test_who_else_is_in_a_step_does_not_matter() -> None:
    head, w = head_of()
    together = head.gradients(w, graphs(), torch.arange(4), SCHEMA)
    for number in range(4):
        alone = head.gradients(w, graphs(), torch.tensor([number]), SCHEMA)
        for name in w:
            assert torch.allclose(alone[name][0], together[name][number], atol=1e-6)


def test_of_no_graph_there_is_no_row() -> None:
    head, w = head_of()
    found = head.gradients(w, graphs(), torch.arange(0), SCHEMA)
    assert {name: tuple(v.shape) for name, v in found.items()} == {n: (0, *v.shape) for n, v in w.items()}
