"""Personal models: what an owner makes of a released model and its own data."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.graph.data.datasets import load
from secure_fedgraph.models import personal

CLASSES = 3


@pytest.fixture(scope="module")
def graph() -> Data:
    made = load("synthetic-citation", seed=0, nodes=300, features=24, classes=CLASSES).graph
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    for name, nodes in (("train", order[:150]), ("val", order[150:220]), ("test", order[220:])):
        made[f"{name}_mask"] = torch.zeros(300, dtype=torch.bool).index_fill(0, nodes, True)
    return made


def perfect(graph: Data) -> torch.Tensor:
    return 8 * torch.nn.functional.one_hot(graph.y, CLASSES).float()


def accuracy(graph: Data, released: torch.Tensor) -> float:
    model = personal.fit(graph, released, CLASSES)
    scores = personal.scores(model, personal.Smoothed(graph), released, own=True)
    return float((scores.argmax(1) == graph.y)[graph.test_mask].double().mean())


def noise(graph: Data) -> torch.Tensor:
    return torch.randn(300, CLASSES, generator=torch.Generator().manual_seed(1))


def test_a_good_model_is_followed_and_a_useless_one_is_not(graph: Data) -> None:
    alone = accuracy(graph, torch.zeros(300, CLASSES))
    assert accuracy(graph, perfect(graph)) == 1
    assert accuracy(graph, 10 * noise(graph)) >= alone - 0.03 > 1 / CLASSES


def test_test_labels_change_nothing(graph: Data) -> None:
    other = graph.clone()
    other.y = torch.where(graph.test_mask, (graph.y + 1) % CLASSES, graph.y)
    mine, theirs = (personal.fit(one, noise(graph), CLASSES) for one in (graph, other))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    shown = [personal.scores(mine, personal.Smoothed(one), noise(graph), own=True) for one in (graph, other)]
    assert torch.equal(*shown)


@pytest.mark.parametrize("missing", ["train_mask", "val_mask"])
def test_an_owner_without_training_or_validation_nodes_still_has_a_model(graph: Data, missing: str) -> None:
    poor = graph.clone()
    poor[missing] = torch.zeros(300, dtype=torch.bool)
    assert accuracy(poor, perfect(graph)) > 0.9


def test_more_dimensions_than_nodes_are_solved_among_the_nodes(graph: Data) -> None:
    """The same weights, from a system of another size."""
    wide = graph.clone()
    wide.x = torch.cat([graph.x, torch.zeros(300, 400)], dim=1)
    one, other = (personal.fit(g, noise(graph), CLASSES) for g in (graph, wide))
    assert torch.allclose(other["own.0"][:24], one["own.0"], atol=1e-4)
    assert torch.allclose(other["own.0"][24:], torch.zeros(400, CLASSES), atol=1e-6)


def test_features_that_would_not_fit_are_left_out(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(personal, "MOST_VALUES", 1000)
    model = personal.fit(graph, noise(graph), CLASSES)
    assert {name for name in model if name.startswith("own.")} == {"own.0"}
    assert len(model["network.0.0"]) == 24, "the network reads what is left"
    assert bool(personal.scores(model, personal.Smoothed(graph), None, own=True).isfinite().all())
