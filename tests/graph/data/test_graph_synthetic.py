from __future__ import annotations

import time

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.checks import check_graph
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.sample.links import undirected_links


@pytest.mark.parametrize("homophily", [0.2, 0.5, 0.8, 1.0])
def test_homophily_degree_and_skew_come_out_as_asked(homophily: float) -> None:
    graph = citation(nodes=5000, classes=5, homophily=homophily, mean_degree=6.0, seed=1)
    low, high = undirected_links(graph.edge_index)
    assert len(low) == 15_000
    assert graph.edge_index.shape[1] == 30_000
    assert float((graph.y[low] == graph.y[high]).float().mean()) == pytest.approx(homophily, abs=0.03)
    degree = torch.bincount(graph.edge_index[0], minlength=5000).float()
    assert degree.max() > 8 * degree.mean()
    assert degree.median() < degree.mean()


def test_features_are_sparse_binary_and_tell_the_classes_apart() -> None:
    graph = citation(nodes=2000, features=100, classes=4, words_per_node=10)
    assert set(graph.x.unique().tolist()) == {0.0, 1.0}
    assert int(graph.x.sum(1).max()) <= 10
    centres = torch.stack([graph.x[:1000][graph.y[:1000] == label].mean(0) for label in range(4)])
    guess = (graph.x[1000:] @ centres.T).argmax(1)
    accuracy = float((guess == graph.y[1000:]).float().mean())
    assert 0.5 < accuracy < 0.999
    blurred = citation(nodes=2000, features=100, classes=4, words_per_node=10, topic=0.0)
    spread = torch.stack([blurred.x[blurred.y == label].mean(0) for label in range(4)]).std(0).max()
    assert spread < 0.08 < centres.std(0).max()


def test_dense_features_are_real_and_tell_the_classes_apart() -> None:
    graph = citation(nodes=2000, features=50, classes=4, values="dense", seed=3)
    assert graph.x.dtype == torch.float32
    assert not (graph.x == 0).any()
    assert float(graph.x.std()) == pytest.approx(0.2 * 2**0.5, rel=0.1)
    assert float((graph.x.abs() > 1).float().mean()) < 0.002
    centres = torch.stack([graph.x[:1000][graph.y[:1000] == label].mean(0) for label in range(4)])
    guess = torch.cdist(graph.x[1000:], centres).argmin(1)
    assert float((guess == graph.y[1000:]).float().mean()) > 0.9
    words = citation(nodes=2000, features=50, classes=4, seed=3)
    assert torch.equal(words.edge_index, graph.edge_index)
    assert torch.equal(words.y, graph.y)
    with pytest.raises(BadInput, match=r"dataset\.values.*'sparse'"):
        citation(values="sparse")  # type: ignore[arg-type]


def test_the_seed_decides() -> None:
    first, again, other = citation(seed=1), citation(seed=1), citation(seed=2)
    assert all(torch.equal(first[key], again[key]) for key in ("x", "y", "edge_index"))
    assert not torch.equal(first.x, other.x)


@pytest.mark.parametrize("size", [(1, 1, 1), (2, 3, 2), (7, 2, 7)])
def test_tiny_graphs(size: tuple[int, int, int]) -> None:
    nodes, features, classes = size
    graph = citation(nodes, features, classes, mean_degree=min(4.0, nodes - 1))
    check_graph(graph, "tiny")
    assert int(graph.y.max()) < classes
    assert torch.bincount(graph.y, minlength=classes).min() >= 1


def test_a_hundred_thousand_nodes_take_seconds() -> None:
    start = time.process_time()
    assert citation(nodes=100_000).num_nodes == 100_000
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("nodes", 0),
        ("features", 0),
        ("classes", 0),
        ("classes", 601),
        ("mean_degree", -1.0),
        ("mean_degree", 600.0),
        ("homophily", 1.1),
        ("words_per_node", 0),
        ("topic", -0.1),
        ("exponent", 2.0),
    ],
)
def test_settings_out_of_range(setting: str, value: float) -> None:
    with pytest.raises(BadInput, match=f"{setting} is {value}"):
        citation(**{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"nodes": 10**12}, {"nodes": 10**6, "features": 10**6}])
def test_a_graph_that_no_memory_holds_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="nodes is 1000000"):
        citation(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "setting", "value"),
    [
        ("synthetic-citation", "nodes", "x"),
        ("synthetic-citation", "features", 2.5),
        ("synthetic-citation", "homophily", "high"),
        ("synthetic-molecules", "graphs", None),
        ("synthetic-molecules", "graphs", 10**12),
        ("synthetic-molecules", "noise", True),
    ],
)
def test_a_setting_that_is_no_number_is_refused_by_name(data: str, setting: str, value: object) -> None:
    with pytest.raises(BadInput, match=f"dataset.{setting}"):
        sfg.federate(data, **{setting: value})
