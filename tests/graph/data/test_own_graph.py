"""A user's own graph: masks, unlabelled nodes, fields that are used and fields that are named."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.own_graph import own_dataset
from secure_fedgraph.graph.data.splits import MASKS, stratified
from secure_fedgraph.graph.data.synthetic import citation

NODES = 120


def mask(start: int, stop: int) -> torch.Tensor:
    return (torch.arange(NODES) >= start) & (torch.arange(NODES) < stop)


def graph(**fields: Any) -> Data:
    data = citation(NODES, 16, 3, 0)
    for key, value in fields.items():
        data[key] = value
    return data


def masks(train: int = 30, val: int = 60, test: int = 110) -> dict[str, torch.Tensor]:
    return dict(zip(MASKS, (mask(0, train), mask(train, val), mask(val, test)), strict=True))


def unlabelled(share: int = 3, **fields: Any) -> Data:
    data = graph(**fields)
    data.y[::share] = -1
    return data


def held(federation: sfg.Federation, key: str) -> list[int]:
    return sorted(int(n) for o in federation.owners.values() for n in o.node_id[o[key]])


@pytest.mark.parametrize("partition", ["random", "louvain"])
def test_masks_are_kept_to(partition: str) -> None:
    made = sfg.federate(graph(**masks()), 3, partition)
    test_set = made.referee.test_set
    for key, asked in zip(MASKS, (test_set.trainings, test_set.validations, test_set.tests), strict=True):
        wanted = masks()[key].nonzero().flatten().tolist()
        assert held(made, key) == wanted
        assert sorted(torch.cat(list(asked.values())).tolist()) == wanted
    assert made.facts["masks"] == {"train_mask": 30, "val_mask": 30, "test_mask": 50}
    assert int(made.pooled().owners["pool"].train_mask.sum()) == 30


def test_training_sees_the_masks_nodes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from secure_fedgraph.algorithms.training import local_training

    seen: list[int] = []
    batches = local_training._batches

    def noted(client: Any, data: Data, settings: Any) -> Any:
        for batch in batches(client, data, settings):
            seen.extend(data.node_id[batch].tolist())
            yield batch

    monkeypatch.setattr(local_training, "_batches", noted)
    sfg.train(sfg.FedSage(hidden=(8, 4)), sfg.federate(graph(**masks()), 3, "random"), "masked", rounds=1)
    assert sorted(seen) == list(range(30))


def test_a_vertical_split_keeps_masks() -> None:
    made = sfg.federate(graph(**masks()), 2, "vertical")
    assert all(torch.equal(o.train_mask, masks()["train_mask"]) for o in made.owners.values())
    assert made.referee.test_set.tests["everybody"].tolist() == list(range(60, 110))
    for owner in made.owners.values():
        assert owner.y[30:].tolist() == [-1] * 90


def test_a_partition_with_a_split_of_its_own_refuses_masks() -> None:
    with pytest.raises(BadInput, match="label_skew"):
        sfg.federate(graph(**masks()), 2, "label_skew")


@pytest.mark.parametrize(
    "left", [("train_mask",), ("train_mask", "test_mask"), ("test_mask",), ("val_mask",)]
)
def test_missing_masks_are_derived_from_the_rest_and_named(left: tuple[str, ...]) -> None:
    given = {key: masks()[key] for key in left}
    missing = [key for key in MASKS if key not in left]
    with pytest.warns(sfg.DataWarning) as caught:
        made = sfg.federate(graph(**given), 2, "random")
    assert len(caught) == 1 and all(f"{key} is missing" in str(caught[0].message) for key in missing)
    for key in left:
        assert held(made, key) == given[key].nonzero().flatten().tolist()
    everything = [n for key in MASKS for n in held(made, key)]
    assert sorted(everything) == list(range(NODES))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {**masks(), "val_mask": mask(29, 60)},
            "1 nodes are in train_mask and in val_mask, the first is node 29",
        ),
        ({**masks(), "test_mask": mask(10, 20)}, "train_mask and in test_mask"),
        ({"train_mask": mask(0, 30).float()}, r"train_mask has type torch.float32"),
        ({"train_mask": mask(0, 30)[:-1]}, r"train_mask has type torch.bool and shape \(119,\)"),
        ({"train_mask": ["yes"] * NODES}, "train_mask is of type list"),
        ({"train_mask": mask(0, 0)}, "no node to train on"),
        ({"train_mask": mask(0, NODES)}, "left to test on"),
        ({"edge_weight": torch.ones(3)}, r"edge_weight has type torch.float32 and shape \(3,\)"),
        ({"edge_weight": "heavy"}, "edge_weight is of type str"),
        ({"edge_weight": torch.full((graph().num_edges,), float("nan"))}, "edge_weight is not finite"),
        ({"edge_attr": torch.ones(2, 3)}, r"edge_attr has type torch.float32 and shape \(2, 3\)"),
        ({"y": torch.full((NODES, 4), 2)}, "several labels are 0 or 1"),
        ({"y": torch.full((NODES,), torch.inf)}, "y is inf"),
        ({"y": torch.full((NODES,), -1)}, "no node has a label"),
        ({"y": torch.full((NODES,), -100)}, "label -100"),
    ],
)
def test_what_cannot_be_used_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words) as refusal:
        sfg.federate(graph(**fields), 2, "random")
    assert "\n" not in str(refusal.value)


def test_more_classes_than_labelled_nodes_are_labels_with_gaps() -> None:
    data = graph()
    data.y[:60] = -1
    data.y[100] = 60
    with pytest.raises(BadInput, match=r"label 60 at node 100.* 61 classes for 60 labelled nodes; relabel"):
        sfg.federate(data, 2, "random")
    data.y[100] = 59
    assert sfg.federate(data, 2, "random").schema.classes == 60
    data.y[data.y >= 0] = data.y[data.y >= 0].unique(return_inverse=True)[1]  # as the message says
    assert sfg.federate(data, 2, "random").schema.classes == 4


def test_every_field_that_is_dropped_is_named_once() -> None:
    with pytest.warns(sfg.DataWarning, match="pos, title are not used") as caught:
        sfg.federate(graph(pos=torch.rand(NODES, 2), title="mine", num_nodes=NODES), 2, "random")
    assert len(caught) == 1


def test_a_plain_graph_says_nothing_and_narrow_types_are_widened() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = graph()
        made = sfg.federate(
            Data(x=plain.x.double(), y=plain.y.int(), edge_index=plain.edge_index.int()), 2, "random"
        )
    assert made.facts["digest"] == sfg.federate(plain, 2, "random").facts["digest"]
    assert next(iter(made.owners.values())).x.dtype == torch.float32


def test_a_dataset_shares_no_tensor_with_the_graph_that_was_given() -> None:
    data = graph(
        **masks(), edge_weight=torch.ones(graph().num_edges), edge_attr=torch.ones(graph().num_edges)
    )
    made = own_dataset(data, 0).graph
    assert set(made.keys()) == set(data.keys())
    for key in made.keys():  # noqa: SIM118
        before = data[key].clone()
        made[key].fill_(True)
        assert torch.equal(data[key], before), key


def test_masks_and_weights_are_in_the_digest() -> None:
    found = {
        sfg.federate(graph(**fields), 2, "random").facts["digest"]
        for fields in ({}, masks(), masks(31), {"edge_weight": torch.ones(graph().num_edges)})
    }
    assert len(found) == 4


# ---- nodes without a label


@pytest.mark.parametrize("partition", ["random", "louvain", "label_skew", "vertical"])
def test_unlabelled_nodes_are_in_no_mask(partition: str) -> None:
    data = unlabelled()
    split = {"local_tests": 5, "major_labels": 2} if partition == "label_skew" else None
    made = sfg.federate(data, 2, partition, split=split)
    assert made.schema.classes == 3
    for owner in made.owners.values():
        for key in MASKS:
            assert int((owner.y[owner[key]] < 0).sum()) == 0
        assert bool(owner.train_mask.any())
    test_set = made.referee.test_set
    for asked in (test_set.tests, test_set.validations):
        assert all(bool((test_set.labels[nodes] >= 0).all()) for nodes in asked.values())


def test_unlabelled_nodes_in_a_mask_are_left_out_of_it_and_counted() -> None:
    with pytest.warns(sfg.DataWarning, match="train_mask"):
        made = sfg.federate(unlabelled(**masks()), 2, "random")
    assert held(made, "train_mask") == [n for n in range(30) if n % 3]


def test_a_split_of_labels_leaves_the_unlabelled_alone() -> None:
    y = torch.tensor([0, -1, 1, 0, 1, -1, 0, 1])
    together = torch.stack(stratified(y, 0))
    assert together.sum(0).tolist() == [1, 0, 1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize("name", ["fedsage", "fedsage+", "fedego", "glasu", "apflgate", "local"])
def test_algorithms_learn_with_unlabelled_nodes(name: str) -> None:
    from secure_fedgraph.algorithms import ALGORITHMS

    small: dict[str, dict[str, Any]] = {
        "fedsage": {"hidden": (8, 4)},
        "fedsage+": {
            "hidden": (8, 4),
            "generator_epochs": 1,
            "federated_epochs": 1,
            "generator_hidden": (8, 8),
        },
        "fedego": {"hidden": (8, 8), "fanout": (2, 2), "batch": 4},
        "apflgate": {"hidden": (8, 4)},
        "local": {"hidden": (8, 4)},
    }
    if name == "fedsage+":
        small[name] |= {"exchange_batch": 8, "minimum_batch": 8}
    made = sfg.federate(unlabelled(), 3, "vertical" if name == "glasu" else "random")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run = sfg.train(ALGORITHMS[name](**small.get(name, {})), made, "strictest", rounds=1)
    assert 0 <= run.accuracy["global"] <= 1


def test_labels_drawn_anew_leave_the_unlabelled_alone() -> None:
    from secure_fedgraph.privacy.input_dp.registry import RANDOMIZERS

    y = unlabelled().y
    drawn = RANDOMIZERS["labels"](0.1).randomize(Data(y=y), 3)
    assert torch.equal(drawn < 0, y < 0) and not torch.equal(drawn, y)


def test_names_of_columns_and_classes_stand_with_the_facts() -> None:
    names = {"feature_names": [f"word-{i}" for i in range(16)], "class_names": ["red", "green", "blue"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # they are used, and no warning says otherwise
        facts = sfg.federate(graph(**names), clients=2).facts
    assert {key: facts[key] for key in names} == names
    silos = sfg.federate({"a": graph(**names), "b": graph(**names)}, holders=2).facts
    assert silos["feature_names"] == names["feature_names"]
    assert silos["class_names"] == names["class_names"]  # the same order at both is kept
    assert not set(names) & set(sfg.federate(graph(), clients=2).facts)


@pytest.mark.parametrize("key", ["feature_names", "class_names"])
def test_a_name_that_is_missing_is_refused(key: str) -> None:
    with pytest.raises(BadInput, match=f"{key} has 2 names for"):
        own_dataset(graph(**{key: ["a", "b"]}), 0)
