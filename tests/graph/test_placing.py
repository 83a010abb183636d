"""Tensors on another device: copied once, the same numbers, and a device that is not there is refused."""

from __future__ import annotations

import pytest
import torch
from pretended_gpu import CPU, GPU, OnGpu, pretended_gpu
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.placing import check_device, copied_to, placed
from secure_fedgraph.graph.sample.packing import pack, select_graphs
from secure_fedgraph.graph.sample.trees import NeighbourTable, own_tree
from secure_fedgraph.graph.sparse_matrix import SparseMatrix

LINKS = torch.tensor([[1, 2, 2, 0, 3], [0, 0, 1, 1, 4]])


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def graph() -> Data:
    return Data(x=torch.rand(6, 3, generator=seeded()), edge_index=LINKS, y=torch.arange(6) % 2)


@pytest.mark.parametrize("given", ["gpu", "cuda:1", "CUDA", None, 0, torch.device("cpu")])
def test_a_device_of_another_name_is_refused_with_those_that_there_are(given: object) -> None:
    with pytest.raises(BadInput, match=r"device = .*: use one of the texts cpu, cuda"):
        check_device(given)


def test_a_gpu_that_is_not_there_is_refused_with_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check_device("cpu")
    with pytest.raises(BadInput, match=r"device = 'cuda': torch .*; use cpu, or a machine"):
        check_device("cuda")


def test_on_the_cpu_nothing_is_copied() -> None:
    made = graph()
    assert placed(made, CPU) is made
    assert copied_to(CPU, made.x) is made.x


def test_a_tensor_is_copied_once_until_it_changes() -> None:
    x = torch.ones(2)
    with pretended_gpu():
        first = copied_to(GPU, x)
        assert isinstance(first, OnGpu) and copied_to(GPU, x) is first
        assert copied_to(GPU, first) is first
        x.add_(1)
        again = copied_to(GPU, x)
    assert again is not first
    assert torch.equal(again.held, x) and not torch.equal(first.held, x)


def test_all_tensors_of_a_graph_are_placed_and_its_own_stay() -> None:
    made = graph()
    made.name = "kept"
    with pretended_gpu():
        there = placed(made, GPU)
    assert all(isinstance(there[key], OnGpu) for key in ("x", "edge_index", "y")) and there.name == "kept"
    assert type(made.x) is torch.Tensor and there.num_nodes == made.num_nodes == 6


def test_a_seed_draws_the_same_neighbours_wherever_the_table_lies() -> None:
    nodes, fanouts = torch.tensor([0, 1, 5, 4]), (3, 2)
    here = NeighbourTable(LINKS, 6).sample_tree(nodes, fanouts, seeded())
    with pretended_gpu():
        table = NeighbourTable.of(copied_to(GPU, LINKS), 6)
        there = table.sample_tree(nodes.to(GPU), fanouts, seeded())
        assert all(isinstance(level, OnGpu) for level in (*there, table.col, table.rowptr, table.degree))
    assert all(torch.equal(a, b.held) for a, b in zip(here, there, strict=True))


def test_sums_and_matrices_are_the_same_there() -> None:
    x = (torch.rand(30, 50, generator=seeded()) < 0.1).float()
    rows, weight = torch.tensor([3, 3, 29, 0]), torch.rand(50, 4, generator=seeded(), requires_grad=True)
    here = SparseMatrix.of(x).select(rows).times(weight)
    here.square().sum().backward()
    table, values = NeighbourTable(LINKS, 6), torch.rand(6, 2, generator=seeded())
    with pretended_gpu():
        again = weight.detach().to(GPU).requires_grad_()
        there = SparseMatrix.of(x.to(GPU)).select(rows.to(GPU)).times(again)
        there.square().sum().backward()
        summed = NeighbourTable(LINKS.to(GPU), 6).sums(values.to(GPU))
        mean = NeighbourTable(LINKS.to(GPU), 6).mean_matrix() @ values.to(GPU)
        same = [there.cpu(), again.grad.cpu(), summed.cpu(), mean.cpu()]
    expected = [here.detach(), weight.grad, table.sums(values), table.mean_matrix() @ values]
    assert all(torch.equal(a.detach(), b) for a, b in zip(same, expected, strict=True))


def test_graphs_of_a_union_are_selected_there() -> None:
    packed, chosen = pack([Data(x=torch.full((n, 1), float(n)), edge_index=LINKS[:, :0], y=torch.tensor([n]))
                           for n in (1, 2, 3)]), torch.tensor([2, 0])  # fmt: skip
    here = select_graphs(packed, chosen)
    with pretended_gpu():
        there = select_graphs(placed(packed, GPU), chosen.to(GPU)).to_dict()
    assert all(torch.equal(value, there[key].held) for key, value in here.to_dict().items())


def test_nodes_alone_are_trees_there() -> None:
    with pretended_gpu():
        levels = own_tree(torch.tensor([0, 1]).to(GPU), 2)
    here = own_tree(torch.tensor([0, 1]), 2)
    assert all(torch.equal(a, b.held) for a, b in zip(here, levels, strict=True))
