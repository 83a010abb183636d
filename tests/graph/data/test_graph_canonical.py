from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from secure_fedgraph.graph.data.canonical import canonical, content_digest
from secure_fedgraph.graph.data.synthetic import citation


def renumbered(graph: Data, seed: int) -> Data:
    """The same graph with other node and class numbers, one direction per link, some twice, and a loop."""
    rng = torch.Generator().manual_seed(seed)
    nodes, classes = graph.num_nodes, int(graph.y.max()) + 1
    node = torch.randperm(nodes, generator=rng)
    back = torch.argsort(node)
    label = torch.randperm(classes, generator=rng)
    edges = node[graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]]
    edges = torch.where(torch.rand(edges.shape[1], generator=rng) < 0.5, edges, edges.flip(0))
    edges = edges[:, torch.randperm(edges.shape[1], generator=rng)]
    edges = torch.cat([edges, edges[:, :3].flip(0), torch.tensor([[0], [0]])], dim=1)
    return Data(x=graph.x[back], y=label[graph.y][back], edge_index=edges)


def same(first: Data, second: Data) -> bool:
    return all(torch.equal(first[key], second[key]) for key in ("x", "y", "edge_index"))


@given(st.integers(0, 10_000), st.integers(2, 80), st.integers(1, 4), st.integers(1, 12))
def test_numbers_do_not_matter(seed: int, nodes: int, classes: int, features: int) -> None:
    classes = min(classes, nodes)
    degree = min(3.0, nodes - 1)
    graph = citation(nodes, features, classes, seed, mean_degree=degree, words_per_node=2)
    first, second = canonical(graph), canonical(renumbered(graph, seed))
    assert same(first, second)
    assert content_digest(first) == content_digest(second)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_interchangeable_nodes_and_classes_do_not_matter(seed: int, copies: int) -> None:
    """Copies of one featureless path, each a class of its own: nothing but symmetry tells them apart."""
    path = torch.tensor([[0, 1, 2], [1, 2, 3]])
    edges = torch.cat([path + 4 * copy for copy in range(copies)], dim=1)
    y = torch.arange(copies).repeat_interleave(4)
    graph = Data(x=torch.zeros(4 * copies, 2), y=y, edge_index=edges)
    assert same(canonical(graph), canonical(renumbered(graph, seed)))


def test_the_graph_stays_the_same_graph() -> None:
    graph = citation(nodes=300, seed=5)
    made = canonical(graph)
    assert torch.equal(made.x.sum(0), graph.x.sum(0))
    assert made.edge_index.shape == graph.edge_index.shape
    assert same(canonical(made), made)
    sizes = torch.bincount(made.y).tolist()
    assert sizes == sorted(torch.bincount(graph.y).tolist(), reverse=True)

    def census(which: Data) -> list[tuple[float, ...]]:
        """Per link, in any numbering: the feature sums of both ends and whether they share a class."""
        source, target = which.edge_index
        words = which.x @ torch.arange(1.0, 65.0)
        rows = torch.stack([words[source], words[target], (which.y[source] == which.y[target]).float()])
        return sorted(map(tuple, rows.T.tolist()))

    assert census(made) == census(graph)


def test_any_change_of_content_changes_the_digest() -> None:
    graph = canonical(citation(nodes=60))
    digests = {content_digest(graph)}
    for key in ("x", "y", "edge_index"):
        other = graph.clone()
        if key == "edge_index":
            other.edge_index = other.edge_index[:, 1:]
        else:
            other[key][7] = 1 - other[key][7]
        digests.add(content_digest(other))
        digests.add(content_digest(canonical(other)))
    assert len(digests) >= 4


def test_link_order_does_not_change_the_digest() -> None:
    graph = canonical(citation(nodes=60))
    other = graph.clone()
    other.edge_index = other.edge_index.flip(1)
    assert content_digest(graph) == content_digest(other)


@pytest.mark.filterwarnings("error")
def test_a_graph_without_links_or_features() -> None:
    graph = Data(
        x=torch.zeros(4, 3), y=torch.tensor([0, 1, 1, 1]), edge_index=torch.empty(2, 0, dtype=torch.long)
    )
    made = canonical(graph)
    assert sorted(made.y.tolist()) == [0, 0, 0, 1]
    assert made.edge_index.shape == (2, 0)
