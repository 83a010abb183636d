"""What a run's score stands beside: the commonest class, and the best that owners do alone."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch_geometric.data import Data

from secure_fedgraph.evaluation import mean
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.partition.result import EVERYBODY, TestSet
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.metrics.alone import Alone
from secure_fedgraph.metrics.counting import MANY, Counting
from secure_fedgraph.metrics.figures import measured

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
