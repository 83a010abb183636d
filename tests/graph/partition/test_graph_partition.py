from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.partition.partition import PARTITIONS, induced, partition
from secure_fedgraph.graph.sample.links import undirected_links

GRAPH = citation(nodes=400, classes=4, seed=3)


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize("owners", [1, 3, 10, 400])
def test_every_node_has_one_owner_and_every_link_is_counted(name: str, owners: int) -> None:
    made = partition(name, GRAPH, owners, seed=0)
    assert torch.equal(torch.cat(made.parts).sort().values, torch.arange(400))
    assert made.sizes == tuple(len(part) for part in made.parts)
    assert min(made.sizes) >= 1
    assert sum(made.inner_links) + made.missing_links == undirected_links(GRAPH.edge_index).shape[1]
    inner = tuple(induced(GRAPH, part).edge_index.shape[1] // 2 for part in made.parts)
    assert inner == made.inner_links
    if owners == 1:
        assert made.missing_links == 0


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_the_seed_decides(name: str) -> None:
    first, again, other = (partition(name, GRAPH, 5, seed).parts for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(len(a) == len(b) and torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_louvain_owners_are_of_similar_size_and_keep_more_links_than_random_ones() -> None:
    louvain, random = (partition(name, GRAPH, 4, seed=0) for name in ("louvain", "random"))
    assert max(louvain.sizes) - 100 <= 30 and 100 - min(louvain.sizes) <= 30
    assert louvain.missing_links < 0.6 * random.missing_links
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
    bare = partition("louvain", graph, 4, seed=0, delta=0, classes=False)
    assert bare.missing_links == 0 and set(bare.sizes) == {30}
    mended = partition("louvain", graph, 4, seed=0, delta=0)
    counts = torch.stack([torch.bincount(graph.y[part], minlength=4) for part in mended.parts])
    assert int(counts.min()) == 2


def test_repair_stops_where_a_class_is_too_small() -> None:
    graph = planted()
    graph.y = (torch.arange(120) < 5).long()
    counts = [int(graph.y[part].sum()) for part in partition("louvain", graph, 4, seed=0).parts]
    assert sum(counts) == 5 and max(counts) <= 2 + 1


def test_a_community_that_is_too_large_is_cut() -> None:
    pairs = torch.combinations(torch.arange(100)).T
    clique = Data(x=torch.ones(100, 1), y=torch.zeros(100).long(), edge_index=pairs)
    made = partition("louvain", clique, 4, seed=0)
    assert max(made.sizes) <= 25 + 25 / 4 and min(made.sizes) >= 25 - 25 / 4


@pytest.mark.parametrize("owners", [2, 7, 20, 30, 33])
def test_equal_communities_starve_no_owner(owners: int) -> None:
    """Pieces of 10 into owners of 13 + 3: greedy filling would use up all nodes before the last owner."""
    pairs = torch.combinations(torch.arange(10)).T
    edges = torch.cat([pairs + 10 * clique for clique in range(40)], dim=1)
    graph = Data(x=torch.ones(400, 1), y=torch.zeros(400).long(), edge_index=edges)
    made = partition("louvain", graph, owners, seed=0)
    share = 400 / owners
    slack = min(20, share / 4)
    assert share - slack - 1 <= min(made.sizes) and max(made.sizes) <= share + slack


def test_cutting_nearby_nodes_together_loses_fewer_links() -> None:
    ring = torch.stack([torch.arange(60), (torch.arange(60) + 1) % 60])
    chords = torch.stack([torch.arange(60), (torch.arange(60) + 2) % 60])
    graph = Data(x=torch.ones(60, 1), y=torch.zeros(60).long(), edge_index=torch.cat([ring, chords], dim=1))
    lost = {
        inside: sum(
            partition("louvain", graph, 12, seed, delta=0, inside=inside).missing_links for seed in (0, 1, 2)
        )
        for inside in ("arbitrary", "nearby")
    }
    assert lost["nearby"] < lost["arbitrary"]


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
    made = partition("random", GRAPH, 4, seed=0)
    table = made.table()
    assert table["nodes"] == 100
    assert 4 * table["links"] + table["missing_links"] == undirected_links(GRAPH.edge_index).shape[1]


@pytest.mark.parametrize("owners", [0, -1, 401])
@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_impossible_numbers_of_owners(name: str, owners: int) -> None:
    with pytest.raises(BadInput, match=f"owners is {owners}.*1 to 400"):
        partition(name, GRAPH, owners, 0)


def test_unknown_names_and_settings() -> None:
    with pytest.raises(BadInput, match="'louvain'"):
        partition("luvain", GRAPH, 2, 0)
    with pytest.raises(BadInput, match="'sorted'"):
        partition("louvain", planted(), 10, 0, inside="sorted")
    with pytest.raises(BadInput, match="delta is -1"):
        partition("louvain", GRAPH, 2, 0, delta=-1)
