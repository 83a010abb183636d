"""Heads of whole graphs: one gradient a graph against a loop, and none that another graph moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedsgd.heads import gin
from secure_fedgraph.algorithms.fedsgd.heads.gin import GinHead, labelled
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import GraphPerceptron
from secure_fedgraph.algorithms.fedsgd.settings import GraphSgdSettings
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.packing import pack, select_graphs
from secure_fedgraph.graph.schema import Schema

SCHEMA = Schema(features=3, classes=2, kind="graph")
HEADS: dict[str, Any] = {"mlp": GraphPerceptron, "gin": GinHead}


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


def head_of(network: str) -> tuple[Any, dict[str, Tensor]]:
    head = HEADS[network](GraphSgdSettings(network=network, hidden=4))
    return head, {
        name: drawn(*v.shape, seed=i) / 2 for i, (name, v) in enumerate(head.init(SCHEMA, 0).items())
    }


def score_of(w: dict[str, Tensor], x: Tensor, links: Tensor) -> Tensor:
    """Class scores of one graph, by the definition and nothing of the head's own code."""
    nodes, adjacent = len(x), torch.zeros(len(x), len(x))
    for source, target in links.T.tolist():
        adjacent[target, source] += 1
    degree = adjacent.sum(1)
    bins = torch.stack([(torch.tensor([0, 1, 2, 3, 4, 5, 7, 10, 20]) <= d).sum() - 1 for d in degree])

    def short(v: Tensor) -> Tensor:
        return 5 * v / v.norm(dim=-1, keepdim=True).clamp(min=1e-12)

    h = (short(torch.cat([x, F.one_hot(bins, 9)], 1)) @ w["reduce.weight"].T + w["reduce.bias"]).relu()
    depths = [h]
    for depth in ("sums.0", "sums.1"):
        h = (short(h + adjacent @ h) @ w[f"{depth}.weight"].T + w[f"{depth}.bias"]).relu()
        depths.append(h)
    mean = (short(torch.cat(depths, 1)) / 5).mean(0)
    logs = torch.tensor([float(nodes), float(degree.sum())]).log1p()
    looks = torch.cat(
        [short(mean) / 5, torch.stack([torch.tensor(0.2), *(logs - torch.tensor([3.5, 4.5])) / 2])]
    )
    return short(looks) @ w["head.weight"].T + w["head.bias"]


def test_a_gin_s_gradients_against_a_loop_over_graphs() -> None:
    head, w = head_of("gin")
    packed, chosen = graphs(), torch.tensor([3, 0, 2, 1])
    found = head.gradients(w, packed, chosen, SCHEMA)
    for row, number in enumerate(chosen.tolist()):
        one = select_graphs(packed, torch.tensor([number]))
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        F.cross_entropy(score_of(leaves, one.x, one.edge_index), one.y[0]).backward()
        for name, leaf in leaves.items():
            assert torch.allclose(found[name][row], leaf.grad, atol=1e-4), (name, number)


def test_a_perceptron_s_gradients_against_a_loop_over_graphs() -> None:
    head, w = head_of("mlp")
    packed, chosen = graphs(), torch.tensor([3, 1])
    found, z = head.gradients(w, packed, chosen, SCHEMA), head.read(packed, SCHEMA)
    for row, number in enumerate(chosen.tolist()):
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        hidden = (z[number] @ leaves["inner"] + leaves["inner_bias"]).relu()
        F.cross_entropy(hidden @ leaves["outer"] + leaves["outer_bias"], packed.y[number]).backward()
        for name, leaf in leaves.items():
            assert torch.allclose(found[name][row], leaf.grad, atol=1e-4), (name, number)


@pytest.mark.parametrize("network", HEADS)
def test_no_graph_is_a_part_of_another_s_gradient(network: str) -> None:
    head, w = head_of(network)
    packed, chosen = graphs(), torch.arange(4)
    before = head.gradients(w, packed, chosen, SCHEMA)
    packed.x[packed.graph == 1] = torch.eye(3)[[0, 0, 1, 2, 2]]
    packed.edge_index = packed.edge_index[:, ~((packed.graph == 1)[packed.edge_index[0]])]
    after = head.gradients(w, packed, chosen, SCHEMA)
    moved = sum((after[name] - before[name]).flatten(1).abs().amax(1) for name in w)
    assert moved[1] > 1e-3 and moved[[0, 2, 3]].max() < 1e-6


@pytest.mark.parametrize("network", HEADS)
def test_who_else_is_in_a_step_does_not_matter(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for its gradient, nor for the parts in which a step is computed."""
    head, w = head_of(network)
    together = head.gradients(w, graphs(), torch.arange(4), SCHEMA)
    monkeypatch.setattr(gin, "CHUNK", 3)
    in_parts = head.gradients(w, graphs(), torch.arange(4), SCHEMA)
    for number in range(4):
        alone = head.gradients(w, graphs(), torch.tensor([number]), SCHEMA)
        for name in w:
            assert torch.allclose(alone[name][0], together[name][number], atol=1e-6)
            assert torch.allclose(in_parts[name][number], together[name][number], atol=1e-6)


@pytest.mark.parametrize("network", HEADS)
def test_of_no_graph_there_is_no_row(network: str) -> None:
    head, w = head_of(network)
    found = head.gradients(w, graphs(), torch.arange(0), SCHEMA)
    assert {name: tuple(v.shape) for name, v in found.items()} == {n: (0, *v.shape) for n, v in w.items()}


def test_a_gin_predicts_what_it_was_trained_by() -> None:
    head, w = head_of("gin")
    packed = graphs()
    expected = torch.stack(
        [
            score_of(w, one.x, one.edge_index)
            for i in range(4)
            for one in [select_graphs(packed, torch.tensor([i]))]
        ]
    )
    assert torch.allclose(head.predict(w, packed, SCHEMA), expected, atol=1e-4)
    asked = Data(x=packed.x, edge_index=packed.edge_index, graph=packed.graph)  # as a referee asks
    assert torch.allclose(head.predict(w, asked, SCHEMA), expected, atol=1e-4)


def test_no_layer_of_a_gin_mixes_graphs_or_counts_steps() -> None:
    head, w = head_of("gin")
    model = head._model(SCHEMA)
    assert not list(model.buffers()) and {name.split(".")[0] for name in w} == {"reduce", "sums", "head"}


def test_categories_have_a_number_a_value() -> None:
    molecules = Data(x=torch.tensor([[1, 0], [3, 1]]), edge_index=torch.empty(2, 0, dtype=torch.long))
    made = labelled(molecules, Schema(2, 2, kind="graph", atoms=(3, 2)))
    assert made.labels.tolist() == [[0, 1, 0, 1, 0], [0, 0, 1, 0, 1]]  # beyond the last: the last


def test_a_gin_under_a_budget_for_a_graph() -> None:
    federation = sfg.federate("synthetic-molecules", clients=3, partition="random", seed=0, graphs=60)
    algorithm = sfg.algorithms.GraphFedSgd(network="gin", hidden=4, rate=0.5)
    budget = sfg.Budget(epsilon=4.0, unit="graph", against="outsider")
    spent = sfg.train(algorithm, federation, "central_dp", rounds=2, budget=budget).privacy()
    assert 3.9 < float(spent["graph"]["readers"]["outsider"]) <= 4
    assert 4 < float(spent["node"]["readers"]["outsider"]) < 8.5


def test_a_gin_tells_rings_from_stars() -> None:
    """Of the same sizes and labels: by links alone."""
    made = []
    for number in range(20):
        nodes = 5 + number // 2 % 4
        ring = torch.stack([torch.arange(nodes), torch.arange(1, nodes + 1) % nodes])
        star = torch.stack([torch.zeros(nodes, dtype=torch.long), torch.arange(1, nodes + 1) % nodes])
        links = star if number % 2 else ring
        links = torch.cat([links, links.flip(0)], dim=1)
        made.append(Data(x=torch.ones(nodes, 3), edge_index=links, y=torch.tensor([number % 2])))
    packed, head = pack(made), GinHead(GraphSgdSettings(network="gin", hidden=4))
    w = head.init(SCHEMA, 0)
    for _ in range(30):
        found = head.gradients(w, packed, torch.arange(20), SCHEMA)
        w = {name: value - 0.5 * found[name].mean(0) for name, value in w.items()}
    assert torch.equal(head.predict(w, packed, SCHEMA).argmax(1), packed.y)


def test_a_network_of_nodes_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadInput, match=r"'network' = 'sage'.*'mlp' or 'gin'"):
        sfg.algorithms.GraphFedSgd(network="sage")
