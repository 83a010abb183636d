"""What stands in for a package in the race does what that does."""

import pytest
import torch
from torch_geometric.loader import NeighborSampler, neighbor_sampler

from tests.scripts import script


@pytest.mark.parametrize("sizes", [[-1], [3, 2]])
def test_neighbours_drawn_from_the_matrix_that_stands_in_are_links(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    matrix = script("race_contestants/federatedscope").Sparse
    monkeypatch.setattr(neighbor_sampler, "SparseTensor", matrix)
    torch.manual_seed(0)
    nodes, links = 40, torch.randint(0, 40, (2, 300)).unique(dim=1)
    degree = torch.bincount(links[1], minlength=nodes)
    for drawn_for, named, levels in NeighborSampler(links, sizes=sizes, num_nodes=nodes, batch_size=7):
        assert len(named.unique()) == len(named)
        nearest_first = [levels] if len(sizes) == 1 else levels[::-1]
        assert nearest_first[0].size[1] == drawn_for
        for most, (ends, which, (_, asked)) in zip(sizes, nearest_first, strict=True):
            assert torch.equal(named[ends], links[:, which]) and len(which.unique()) == len(which)
            each = degree[named[:asked]]
            drawn = torch.bincount(ends[1], minlength=asked)
            assert torch.equal(drawn, each if most < 0 else each.clamp(max=most))
