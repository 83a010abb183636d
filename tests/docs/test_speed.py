"""The race leaves out who is not here, and what stands in for a package does what that does."""

from pathlib import Path

import pytest
import torch
from torch_geometric.loader import NeighborSampler, neighbor_sampler

from tests.scripts import script

ROOT = Path(__file__).resolve().parents[2]


def test_who_is_not_here_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    race = script("race")
    none, all_three = race.Places(tmp_path, tmp_path, None, None, None), race.Places(*[tmp_path] * 5)
    contestants = {name for event in race.EVENTS for name in event.contestants}
    left_out = {name: reason for name in contestants if (reason := race.left_out(name, none))}
    assert left_out == {
        "OpenFGL": "OpenFGL: no --openfgl CHECKOUT",
        "FederatedScope": "FederatedScope: no --federatedscope CHECKOUT",
        "FedGraph": "FedGraph: no --fedgraph FOLDER",
    }
    assert not any(race.left_out(name, all_three) for name in contestants)


def test_an_event_that_is_measured_again_replaces_its_own_rows_alone() -> None:
    race = script("race")
    first, second = (event.name for event in race.EVENTS[:2])
    before = [{"event": first, "one": 1}, {"event": second, "one": 2}, {"event": "no event", "one": 3}]
    assert race.merged(before, [{"event": first, "one": 4}]) == [{"event": first, "one": 4}, before[1]]


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
