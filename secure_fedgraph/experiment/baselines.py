"""What a run's score stands beside: the commonest class, and the best that owners do alone."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data

from secure_fedgraph.evaluation import mean
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph import descriptors
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.partition.result import EVERYBODY, TestSet
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.metrics.alone import Alone
from secure_fedgraph.metrics.counting import MANY, Counting
from secure_fedgraph.metrics.figures import Measured, measured
from secure_fedgraph.models import personal

LOST = 0.4
"""The share of a score that noise as long as the signal takes: .2 (FedSage on Cora) to .4 (FedEgo)."""
MARGIN = 0.01
MOST_OWNERS = 20
"""Owners whose own models are trained, evenly spread over all where there are more."""


def baselines(federation: Federation, commonest: float | None, headline: str) -> dict[str, Any]:
    """What stands beside a run's score, for its result.

    It is made outside of the federation, where all owners' data are at hand, from their own test items:
    nothing of it is sent, and no epsilon covers it.

    Args:
        federation: whose owners' data are here.
        commonest: the accuracy of the commonest class.
        headline: the metric that owners' own models are compared by.
    """
    found: dict[str, Any] = {"best": None, "paper": None, "metrics": {}}
    schema = federation.schema
    if schema.kind in ("node", "graph"):
        each, cells = [], torch.zeros(2, Counting(schema, MANY).size, dtype=torch.float64)
        for name in _some(list(federation.owners)):
            counted = _counted(federation, name, schema)
            if counted is None:
                continue
            cells += counted
            own = measured(Counting(schema, MANY), counted[0].numpy(), counted[1].numpy(), intervals=False)
            if headline in own.figures:
                each.append(own.figures[headline].value)
        if each:
            every = measured(Counting(schema, MANY), cells[0].numpy(), cells[1].numpy(), intervals=False)
            found["best"] = mean(each)
            found["metrics"] = {name: one.value for name, one in every.figures.items()}
    return {"commonest": commonest, "alone": found}


def expected_gain(federation: Federation, noise_to_signal: float | None, score: str = "accuracy") -> str:
    """What a budget can be expected to give beside what owners have alone, before it is spent.

    One linear model is fitted to each owner's data, and to all data side by side. What the second scores
    more, on the owners' validation items, is what they can gain together at most; noise takes its part.

    Args:
        noise_to_signal: of the planned run, where that is known.
        score: the metric that they are compared by; for accuracy the one that says most on such data.

    Returns:
        A sentence's end; empty where a gain is to be expected, or where nothing is known.
    """
    schema = federation.schema
    shown = [one for graph in federation.owners.values() if (one := _records(graph, schema)) is not None]
    held = any(bool(one.val_mask.any()) for one in shown)
    if schema.task != Task.CLASSES or len(shown) < len(federation.owners) or not held:
        return ""
    apart, beside = _scored(shown, schema), _scored([Batch.from_data_list(shown)], schema)
    said = apart.headline if score == "accuracy" else score
    alone, together = apart.figures.get(said), beside.figures.get(said)
    if alone is None or together is None:
        return ""
    if together.value * (1 - LOST * (noise_to_signal or 0.0)) - alone.value > MARGIN:
        return ""
    why = ", whose data differ" if together.value < alone.value - MARGIN else ""
    return (
        f"do not expect the released model to beat owners alone: without noise, a linear model's {said} "
        f"on validation items is {alone.value:.3f} with one owner's data and {together.value:.3f} "
        f"with all owners'{why}"
    )


def _records(graph: Data, schema: Schema) -> Data | None:
    """What a linear model reads of nodes or graphs; None without a training record."""
    masks = {key: graph.get(key) for key in ("y", "train_mask", "val_mask")}
    if schema.kind not in ("node", "graph") or any(one is None for one in masks.values()):
        return None
    if not bool(graph.train_mask.any()):
        return None
    if schema.kind == "node":
        return Data(x=graph.x, edge_index=graph.edge_index, **masks)
    described = descriptors.descriptors(graph, schema)
    return Data(x=described, edge_index=torch.zeros(2, 0, dtype=torch.long), **masks)


def _scored(graphs: Sequence[Data], schema: Schema) -> Measured:
    counting = Counting(schema, MANY)
    cells = torch.zeros(counting.size, dtype=torch.float64)
    for graph in graphs:
        held = graph.val_mask
        cells += counting.total(personal.at_a_glance(graph, schema.classes)[held], graph.y[held])
    return measured(counting, cells.numpy(), np.zeros(counting.size), intervals=False)


def _some(owners: list[str]) -> list[str]:
    step = max(1, -(-len(owners) // MOST_OWNERS))
    return owners[::step]


def _counted(federation: Federation, name: str, schema: Schema) -> torch.Tensor | None:
    """The cells of an owner's test and validation items by its own model, ``[2, size]``.

    Where all owners have the same nodes and the referee their labels, each is taken as if it had these: of
    training and validation nodes to learn, of test nodes to be scored.
    """
    graph, tests = federation.owners[name], federation.referee.test_set
    if tests.inputs.get("x") is None and EVERYBODY in tests.tests:
        graph = _as_if_labelled(graph, tests)
    if graph.get("train_mask") is None or graph.get("val_mask") is None:
        return None
    cells, model = Counting(schema, MANY), Alone(graph, schema)
    mine = tests.tests.get(name)
    if not bool(graph.test_mask.any()) and mine is not None:  # only the referee holds its test items
        outputs, y, masks = model.outputs(tests.inputs), tests.labels, (mine, tests.validations.get(name))
    else:
        outputs, y = model.outputs(graph), graph.y
        masks = tuple(graph[key].nonzero().flatten() for key in ("test_mask", "val_mask"))
    if outputs is None or masks[0] is None or not len(masks[0]):
        return None
    held = masks[1] if masks[1] is not None else torch.zeros(0, dtype=torch.long)
    return torch.stack([cells.total(outputs[one], y[one]) for one in (masks[0], held)])


def _as_if_labelled(graph: Data, tests: TestSet) -> Data:
    made, parts = copy(graph), (tests.trainings, tests.validations, tests.tests)
    made.y = tests.labels
    for key, nodes in zip(MASKS, parts, strict=True):
        made[key] = torch.zeros(len(made.y), dtype=torch.bool)
        made[key][nodes.get(EVERYBODY, torch.zeros(0, dtype=torch.long))] = True
    return made
