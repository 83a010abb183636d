"""What a whole graph looks like in a few numbers, checked against networkx."""

from __future__ import annotations

import math

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.graph import descriptors
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import Schema

SCHEMA = Schema(features=2, classes=2, kind="graph")


def packed(*graphs: nx.Graph) -> Data:
    made = []
    for number, graph in enumerate(graphs):
        links = torch.tensor([*graph.edges, *[(b, a) for a, b in graph.edges]], dtype=torch.long).reshape(
            -1, 2
        )
        labels = torch.arange(len(graph)) % 2
        x = torch.nn.functional.one_hot(labels, 2).float()
        made.append(Data(x=x, edge_index=links.T, y=torch.tensor([number % 2])))
    return pack(made)


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the last step: what stands in each place is known then."""
    monkeypatch.setattr(descriptors.F, "normalize", lambda rows, dim: rows)


@pytest.mark.usefixtures("raw")
def test_triangles_and_clustering_are_those_of_networkx() -> None:
    graphs = [nx.gnp_random_graph(20, 0.4, seed=seed) for seed in range(5)] + [
        nx.path_graph(6),
        nx.empty_graph(3),
    ]
    rows = descriptors.descriptors(packed(*graphs), SCHEMA)
    for row, graph in zip(rows, graphs, strict=True):
        usual, far = descriptors._USUAL["triangles"]
        triangles = sum(nx.triangles(graph).values()) / 3
        assert float(row[3]) == pytest.approx((math.log1p(triangles) - usual) / far, abs=1e-5)
        assert float(row[4]) == pytest.approx(
            nx.average_clustering(graph) - descriptors._CLUSTERING, abs=1e-5
        )


@pytest.mark.usefixtures("raw")
def test_shares_of_degrees_and_of_pairs_add_up() -> None:
    (row,) = descriptors.descriptors(packed(nx.cycle_graph(6)), SCHEMA)
    degrees, pairs = row[-12:-3] + 1 / 9, row[-3:] + 1 / 3
    assert degrees.tolist() == pytest.approx([0, 0, 1, 0, 0, 0, 0, 0, 0], abs=1e-6)  # all of degree 2
    assert pairs.tolist() == pytest.approx([0, 1, 0], abs=1e-6)  # every link joins the two labels


def test_a_graph_s_row_depends_on_that_graph_alone() -> None:
    one, other = nx.gnp_random_graph(12, 0.4, seed=1), nx.complete_graph(9)
    alone = descriptors.descriptors(packed(one), SCHEMA)[0]
    assert torch.allclose(alone, descriptors.descriptors(packed(one, other), SCHEMA)[0], atol=1e-6)


def test_rows_have_the_public_width_and_length_1() -> None:
    for schema in (SCHEMA, Schema(features=2, classes=2, kind="graph", atoms=(40, 3))):
        graph = packed(nx.complete_graph(4), nx.empty_graph(1))
        if schema.atoms:
            graph.x = torch.zeros(len(graph.graph), 2, dtype=torch.long)
        rows = descriptors.descriptors(graph, schema)
        assert rows.shape == (2, descriptors.width(schema))
        assert rows.norm(dim=1).tolist() == pytest.approx([1, 1], abs=1e-5)
