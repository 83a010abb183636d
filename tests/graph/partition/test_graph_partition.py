from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.partition import communities
from secure_fedgraph.graph.partition.partition import NodeAssignment, induced, louvain, random_parts
from secure_fedgraph.graph.sample.links import undirected_links

GRAPH = citation(nodes=400, classes=4, seed=3)
LARGER = citation(nodes=900, classes=4, mean_degree=6.0, seed=3)
"""Just large enough that its partition is kept."""
RULES: dict[str, Callable[..., NodeAssignment]] = {
    "louvain": louvain,
    "louvain_compiled": partial(louvain, compiled=True),
    "random": random_parts,
}


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("owners", [1, 3, 10, 400])
def test_every_node_has_one_owner_and_every_link_is_counted(name: str, owners: int) -> None:
    made = RULES[name](GRAPH, owners, seed=0)
    assert torch.equal(torch.cat(made.parts).sort().values, torch.arange(400))
    assert made.sizes == tuple(len(part) for part in made.parts)
    assert min(made.sizes) >= 1
    assert sum(made.inner_links) + made.missing_links == undirected_links(GRAPH.edge_index).shape[1]
    inner = tuple(induced(GRAPH, part).edge_index.shape[1] // 2 for part in made.parts)
    assert inner == made.inner_links
    if owners == 1:
        assert made.missing_links == 0


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_seed_decides(name: str) -> None:
    first, again, other = (RULES[name](GRAPH, 5, seed).parts for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(len(a) == len(b) and torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_louvain_owners_are_of_similar_size_and_keep_more_links_than_random_ones() -> None:
    along, random = (RULES[name](GRAPH, 4, seed=0) for name in ("louvain", "random"))
    assert max(along.sizes) - 100 <= 30 and 100 - min(along.sizes) <= 30
    assert along.missing_links < 0.6 * random.missing_links
    assert max(random.sizes) - min(random.sizes) <= 1


def planted() -> Data:
    """Three cliques of 30, one class each, plus a clique of 30 of a fourth class."""
    block = torch.arange(30)
    pairs = torch.combinations(block).T
    edges = torch.cat([pairs + 30 * clique for clique in range(4)], dim=1)
    return Data(
        x=torch.ones(120, 1),
        y=torch.arange(4).repeat_interleave(30),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
    )


def test_repair_gives_every_owner_two_nodes_of_each_class() -> None:
    graph = planted()
    bare = louvain(graph, 4, seed=0, delta=0, classes=False)
    assert bare.missing_links == 0 and set(bare.sizes) == {30}
    mended = louvain(graph, 4, seed=0, delta=0)
    counts = torch.stack([torch.bincount(graph.y[part], minlength=4) for part in mended.parts])
    assert int(counts.min()) == 2


def test_repair_stops_where_a_class_is_too_small() -> None:
    graph = planted()
    graph.y = (torch.arange(120) < 5).long()
    counts = [int(graph.y[part].sum()) for part in louvain(graph, 4, seed=0).parts]
    assert sum(counts) == 5 and max(counts) <= 2 + 1


def test_a_community_that_is_too_large_is_cut() -> None:
    pairs = torch.combinations(torch.arange(100)).T
    clique = Data(x=torch.ones(100, 1), y=torch.zeros(100).long(), edge_index=pairs)
    made = louvain(clique, 4, seed=0)
    assert max(made.sizes) <= 25 + 25 / 4 and min(made.sizes) >= 25 - 25 / 4


@pytest.mark.parametrize("owners", [2, 7, 20, 30, 33])
def test_equal_communities_starve_no_owner(owners: int) -> None:
    """Pieces of 10 into owners of 13 + 3: greedy filling would use up all nodes before the last owner."""
    pairs = torch.combinations(torch.arange(10)).T
    edges = torch.cat([pairs + 10 * clique for clique in range(40)], dim=1)
    graph = Data(x=torch.ones(400, 1), y=torch.zeros(400).long(), edge_index=edges)
    made = louvain(graph, owners, seed=0)
    share = 400 / owners
    slack = min(20, share / 4)
    assert share - slack - 1 <= min(made.sizes) and max(made.sizes) <= share + slack


def test_induced_numbers_nodes_in_the_given_order() -> None:
    graph = Data(
        x=torch.arange(4.0).unsqueeze(1),
        y=torch.tensor([0, 1, 2, 3]),
        edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]),
    )
    part = induced(graph, torch.tensor([2, 1]))
    assert part.x.flatten().tolist() == [2.0, 1.0] and part.y.tolist() == [2, 1]
    assert part.edge_index.tolist() == [[1], [0]]
    assert part.node_id.tolist() == [2, 1]


def test_table_is_the_one_of_the_paper() -> None:
    made = random_parts(GRAPH, 4, seed=0)
    table = made.table()
    assert table["nodes"] == 100
    assert 4 * table["links"] + table["missing_links"] == undirected_links(GRAPH.edge_index).shape[1]


@pytest.mark.parametrize("owners", [0, -1, 401])
@pytest.mark.parametrize("name", sorted(RULES))
def test_impossible_numbers_of_owners(name: str, owners: int) -> None:
    with pytest.raises(BadInput, match=f"owners is {owners}.*1 to 400"):
        RULES[name](GRAPH, owners, 0)


@pytest.mark.parametrize(
    ("partition", "key", "value"),
    [
        ("louvain", "delta", -1),
        ("louvain", "restarts", 0),
        ("label_skew", "local_share", 0.0),
        ("label_skew", "global_tests", 1.0),
        ("label_skew", "major_rate", 1.5),
        ("label_skew", "local_tests", 0),
        ("label_skew", "profile", "loose"),
        ("vertical", "edge_share", 0.0),
        ("vertical", "edge_share", 1.1),
        ("vertical", "labels", "some"),
        ("vertical", "train_per_class", -1),
        ("vertical", "test", 0),
        ("dirichlet", "concentration", 0.0),
        ("dirichlet", "concentration", float("nan")),
        ("dirichlet", "least", 0),
        ("random", "global_test", 1.0),
        ("random", "low", -0.1),
    ],
)
def test_settings_out_of_range_are_refused(partition: str, key: str, value: object) -> None:
    of_sets = partition == "dirichlet" or key in ("global_test", "low")
    name, small = (
        ("synthetic-molecules", {"graphs": 60}) if of_sets else ("synthetic-citation", {"nodes": 60})
    )
    with pytest.raises(BadInput, match=re.escape(f"split.{key} = {value!r}: give ")):
        sfg.federate(name, 2, partition, split={key: value}, **small)


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


def made(seed: int = 0, owners: int = 3, graph: Data = LARGER, **settings: object) -> NodeAssignment:
    return louvain(graph, owners, seed, **{"restarts": 1, **settings})


def same(first: NodeAssignment, second: NodeAssignment) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.parts, second.parts, strict=True))


def test_a_partition_is_searched_for_once(folder: Path, searches: list[int]) -> None:
    first = made()
    assert same(made(), first) and len(searches) == 1 and folder.stat().st_mode & 0o777 == 0o700
    (kept,) = folder.iterdir()
    kept.write_bytes(kept.read_bytes()[:-100])
    assert same(made(), first) and len(searches) == 2


def test_whatever_decides_a_partition_makes_another_one(folder: Path, searches: list[int]) -> None:
    relabelled, fewer = LARGER.clone(), LARGER.clone()
    relabelled.y = (LARGER.y + 1) % 4
    fewer.edge_index = LARGER.edge_index[:, (LARGER.edge_index != 0).all(dim=0)]
    made()
    made(seed=1), made(owners=4), made(delta=5), made(classes=False)
    made(graph=relabelled), made(graph=fewer), made(restarts=2)
    assert len(searches) == 9 and len(list(folder.iterdir())) == 8


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
    assert made(compiled=True).sizes


def test_compiled_louvain_keeps_as_many_links_as_louvain(folder: Path) -> None:
    random, compiled, search = (
        RULES[name](LARGER, 4, 0).missing_links for name in ("random", "louvain_compiled", "louvain")
    )
    assert compiled <= 1.15 * search < random / 1.5


def test_compiled_louvain_gives_nodes_without_links_to_owners_with_room(folder: Path) -> None:
    """A ring of 40 and 60 single nodes: the single nodes are one community, and fill owners up."""
    ring = torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    graph = Data(x=torch.ones(100, 1), y=torch.zeros(100).long(), edge_index=ring, num_nodes=100)
    parted = louvain(graph, 2, 0, compiled=True)
    assert max(parted.sizes) - min(parted.sizes) <= 25 and sum(parted.sizes) == 100
