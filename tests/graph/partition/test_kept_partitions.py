"""Partitions are made once: what is kept, what is not taken from the cache folder, and graphs of any size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.partition import communities
from secure_fedgraph.graph.partition.kept import MAGIC, _digest, _unpacked
from secure_fedgraph.graph.partition.partition import NodeAssignment, partition

GRAPH = citation(nodes=900, classes=4, mean_degree=6.0, seed=3)
"""Just large enough that its partition is kept."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SECURE_FEDGRAPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "partitions"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of all searches for communities."""
    seeds: list[int] = []
    search = nx.community.louvain_communities

    def counted(graph: nx.Graph, seed: int) -> list[set[int]]:
        seeds.append(seed)
        return search(graph, seed=seed)

    monkeypatch.setattr(nx.community, "louvain_communities", counted)
    return seeds


def made(seed: int = 0, owners: int = 3, graph: Data = GRAPH, **settings: object) -> NodeAssignment:
    return partition("louvain", graph, owners, seed, restarts=1, **settings)


def same(first: NodeAssignment, second: NodeAssignment) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.parts, second.parts, strict=True))


def test_a_partition_is_searched_for_once(folder: Path, searches: list[int]) -> None:
    assert same(made(), made())
    assert len(searches) == 1
    (kept,) = folder.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700


def test_whatever_decides_a_partition_makes_another_one(folder: Path, searches: list[int]) -> None:
    relabelled, fewer = GRAPH.clone(), GRAPH.clone()
    relabelled.y = (GRAPH.y + 1) % 4
    fewer.edge_index = GRAPH.edge_index[:, (GRAPH.edge_index != 0).all(dim=0)]
    made()
    made(seed=1), made(owners=4), made(delta=5), made(inside="nearby"), made(classes=False)
    made(graph=relabelled), made(graph=fewer), partition("louvain", GRAPH, 3, 0, restarts=2)
    assert len(searches) == 10 and len(list(folder.iterdir())) == 9


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def one_owner_less(path: Path) -> None:
    """With a digest that fits, as somebody would write it who wants one owner to have nothing."""
    body = np.zeros(900, dtype="<i4")
    body[:450] = 1
    path.write_bytes(MAGIC + _digest(path.name, body.tobytes()) + body.tobytes())


def an_owner_too_many(path: Path) -> None:
    body = (np.arange(900) % 4).astype("<i4")
    path.write_bytes(MAGIC + _digest(path.name, body.tobytes()) + body.tobytes())


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(bytes(content))


def a_link(path: Path) -> None:
    """To an intact file: whose it is, nobody knows."""
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("spoil", [truncated, one_owner_less, an_owner_too_many, flipped, a_link, a_pipe])
def test_a_damaged_or_planted_file_is_made_again(
    spoil: Callable[[Path], None], folder: Path, searches: list[int]
) -> None:
    first = made()
    (kept,) = folder.iterdir()
    intact = kept.read_bytes()
    spoil(kept)
    assert same(made(), first)
    assert len(searches) == 2
    assert kept.read_bytes() == intact and not kept.is_symlink()


def test_a_cache_folder_that_cannot_be_written_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searches: list[int]
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SECURE_FEDGRAPH_CACHE", str(tmp_path / "file"))
    assert same(made(), made())
    assert len(searches) == 2


def test_louvain_refuses_what_it_would_take_hours_for(
    folder: Path, searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(communities, "MOST_LINKS", 2_500)
    with pytest.raises(BadInput, match=r"louvain: the graph has 2,7\d\d links.*louvain_compiled"):
        made()
    assert not searches
    assert partition("louvain_compiled", GRAPH, 3, 0).sizes


def test_compiled_louvain_keeps_as_many_links_as_louvain(folder: Path) -> None:
    random, compiled = (partition(name, GRAPH, 4, 0).missing_links for name in ("random", "louvain_compiled"))
    louvain = partition("louvain", GRAPH, 4, 0).missing_links
    assert compiled <= 1.15 * louvain < random / 1.5


def test_compiled_louvain_gives_nodes_without_links_to_owners_with_room(folder: Path) -> None:
    """A ring of 40 and 60 single nodes: the single nodes are one community, and fill owners up."""
    ring = torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    graph = Data(x=torch.ones(100, 1), y=torch.zeros(100).long(), edge_index=ring, num_nodes=100)
    parted = partition("louvain_compiled", graph, 2, 0)
    assert max(parted.sizes) - min(parted.sizes) <= 25 and sum(parted.sizes) == 100


def test_compiled_louvain_cut_nearby_loses_fewer_links(folder: Path) -> None:
    """A ring has no communities, so all is in the cuts."""
    nodes = torch.arange(3000)
    ring = torch.cat([torch.stack([nodes, (nodes + hop) % 3000]) for hop in (1, 2)], dim=1)
    # one community: a node linked to all
    hub = torch.stack([torch.full((3000,), 3000), nodes])
    graph = Data(y=torch.zeros(3001).long(), edge_index=torch.cat([ring, hub], dim=1), num_nodes=3001)
    lost = {
        inside: partition("louvain_compiled", graph, 30, 0, inside=inside, restarts=1).missing_links
        for inside in ("arbitrary", "nearby")
    }
    assert lost["nearby"] < lost["arbitrary"]


def test_an_owner_of_any_number_allocates_nothing_and_a_file_of_another_name_is_damaged() -> None:
    body = np.array([0, 1, 2**31 - 1], dtype="<i4").tobytes()
    with pytest.raises(ValueError, match="damaged"):
        _unpacked(MAGIC + _digest("key", body) + body, "key", 3, 3)  # counts of it would take 16 GiB
    good = np.array([0, 1, 2], dtype="<i4").tobytes()
    assert _unpacked(MAGIC + _digest("key", good) + good, "key", 3, 3).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="damaged"):
        _unpacked(MAGIC + _digest("key", good) + good, "other", 3, 3)
