"""Personal models: what an owner makes of a released model and its own data."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import APPNP

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
    scores = personal.scores(model, personal.believed(model, personal.Smoothed(graph), own=True), released)
    return float((scores.argmax(1) == graph.y)[graph.test_mask].double().mean())


def noise(graph: Data) -> torch.Tensor:
    return torch.randn(300, CLASSES, generator=torch.Generator().manual_seed(1))


def test_a_good_model_is_followed_and_a_useless_one_is_not(graph: Data) -> None:
    alone = accuracy(graph, torch.zeros(300, CLASSES))
    assert accuracy(graph, perfect(graph)) == 1
    assert accuracy(graph, 10 * noise(graph)) >= alone - 0.03 > 1 / CLASSES


def test_a_released_model_that_tells_nothing_has_no_part(graph: Data) -> None:
    """Weights are tried on nodes that they were not found on: there the best of a few hundred draws fails."""
    drawn = (torch.randn(300, CLASSES, generator=torch.Generator().manual_seed(seed)) for seed in range(20))
    parts = [float(personal.fit(graph, one, CLASSES)[personal.WEIGHTS][0]) for one in drawn]
    assert sum(part > 0.01 for part in parts) <= 3, (
        "about one in six is likelier by a standard error by chance"
    )
    few = graph.clone()
    few.val_mask = graph.val_mask & (torch.cumsum(graph.val_mask, 0) <= 5)
    assert personal.fit(few, perfect(graph), CLASSES)[personal.WEIGHTS][0] > 0.3


def test_test_labels_change_nothing(graph: Data) -> None:
    other = graph.clone()
    other.y = torch.where(graph.test_mask, (graph.y + 1) % CLASSES, graph.y)
    mine, theirs = (personal.fit(one, noise(graph), CLASSES) for one in (graph, other))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    shown = [
        personal.scores(mine, personal.believed(mine, personal.Smoothed(one), own=True), noise(graph))
        for one in (graph, other)
    ]
    assert torch.equal(*shown)


@pytest.mark.parametrize("wide", [True, False])
def test_several_models_believe_together_what_each_believes_alone(graph: Data, wide: bool) -> None:
    """Few columns are read by each owner's own scale, many by none; one of the owners could train nothing."""
    graph = graph.clone()
    if wide:
        graph.x = torch.cat([graph.x, torch.zeros(300, personal.WIDE)], dim=1)
    models = []
    for rows in (slice(0, 150), slice(100, 300), slice(0, 0)):
        own = graph.clone()
        own.train_mask = torch.zeros(300, dtype=torch.bool)
        own.train_mask[rows] = graph.train_mask[rows]
        models.append(personal.fit(own, None, CLASSES))
    smoothed = personal.Smoothed(graph)
    together = list(personal.each_believes(models, smoothed))
    assert [len(one) for one in together[:2]] == [4, 4] and together[2] == []
    for model, beliefs in zip(models, together, strict=True):
        alone = personal.believed(model, smoothed, own=False)
        assert all(torch.allclose(*pair, atol=1e-4) for pair in zip(beliefs, alone, strict=True))


@pytest.mark.parametrize("missing", ["train_mask", "val_mask"])
def test_an_owner_without_training_or_validation_nodes_still_has_a_model(graph: Data, missing: str) -> None:
    poor = graph.clone()
    poor[missing] = torch.zeros(300, dtype=torch.bool)
    assert accuracy(poor, perfect(graph)) > 0.9


@pytest.mark.parametrize("hops", [0, 2, 16])
def test_many_dimensions_are_solved_without_making_them(
    graph: Data, hops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights step by step as from features that are made."""
    smoothed = personal.Smoothed(graph)
    made = list(personal._regressions(smoothed, hops, CLASSES, (10.0, 1.0)))
    monkeypatch.setattr(personal, "MOST_READ", 1)
    monkeypatch.setattr(personal, "_SMALL", 1e-6)
    steps = list(personal._regressions(smoothed, hops, CLASSES, (10.0, 1.0)))
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(made, steps, strict=True))


def test_features_are_columns_and_means_of_length_one(graph: Data) -> None:
    dense = torch.nn.functional.normalize(graph.x, dim=1)
    travelled = APPNP(1, 0.0)(dense, graph.edge_index)
    width = graph.x.shape[1]
    shown = personal.Smoothed(graph).times(torch.eye(3 * width), 2) * 3**0.5
    assert torch.allclose(shown[:, :width], dense, atol=1e-5)
    assert torch.allclose(shown[:, width : 2 * width], torch.nn.functional.normalize(travelled), atol=1e-5)
    assert torch.allclose(shown.norm(dim=1), torch.full((300,), 3**0.5), atol=1e-5)


def test_own_experts_are_fitted_once_for_the_same_data(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, asked = graph.clone(), list[int]()
    monkeypatch.setattr(personal, "_KEPT", {})
    fitted = personal._regressions
    monkeypatch.setattr(personal, "_regressions", lambda *given: (asked.append(1), fitted(*given))[1])
    one, again = (personal.experts(given, CLASSES)[0] for given in (mine, mine.clone()))
    assert one is again and len(asked) == 3
    mine.y = torch.where(mine.train_mask, (mine.y + 1) % CLASSES, mine.y)
    assert not torch.equal(personal.experts(mine, CLASSES)[0]["own.0"], one["own.0"])
    assert len(personal._KEPT) == 2
    monkeypatch.setattr(personal, "MOST_KEPT", 1)
    personal.experts(graph, CLASSES)
    assert len(personal._KEPT) == 2, "those of before are there, nothing was fitted"
    graph.x = graph.x + 1
    personal.experts(graph, CLASSES)
    assert len(personal._KEPT) == 1, "the newest alone has room"


def test_features_that_would_not_fit_are_left_out(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(personal, "MOST_VALUES", 1000)
    monkeypatch.setattr(personal, "_KEPT", {})
    model = personal.fit(graph, noise(graph), CLASSES)
    assert {name for name in model if name.startswith("own.")} == {"own.0"}
    assert len(model["network.0.0"]) == 24 + 1, "the network reads what is left"
    assert bool(
        personal.scores(model, personal.believed(model, personal.Smoothed(graph), own=True), None)
        .isfinite()
        .all()
    )


def test_other_scores_are_taken_where_validation_nodes_say_so_and_few_say_nothing(graph: Data) -> None:
    useless, few = 10 * noise(graph), graph.clone()
    few.val_mask = graph.val_mask & (torch.cumsum(graph.val_mask, 0) <= 5)
    assert personal.likelier(graph, useless, perfect(graph), CLASSES) is not useless
    for given, other in ((graph, useless), (few, perfect(graph))):
        released = perfect(graph) if other is useless else useless
        assert personal.likelier(given, released, other, CLASSES) is released


@pytest.mark.parametrize("few", [False, True])
def test_models_of_thirds_read_labels_of_training_nodes_alone(graph: Data, few: bool) -> None:
    mine = graph.clone()
    if few:
        mine.train_mask = graph.train_mask & (torch.cumsum(graph.train_mask, 0) <= 6)
    said = personal.by_parts(mine, CLASSES)
    other = mine.clone()
    other.y = torch.where(mine.train_mask, mine.y, (mine.y + 1) % CLASSES)
    other.val_mask = ~mine.train_mask
    assert torch.equal(personal.by_parts(other, CLASSES), said) and bool(said.isfinite().all())
    other.y = torch.where(mine.train_mask, (mine.y + 1) % CLASSES, mine.y)
    assert not torch.equal(personal.by_parts(other, CLASSES), said)
    other.y = torch.full_like(mine.y, -1)
    assert not personal.by_parts(other, CLASSES).any()
