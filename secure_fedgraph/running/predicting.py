"""What a released model says of data that nobody trained on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.core.errors import BadInput, wrong_type
from secure_fedgraph.graph.conversions import plain
from secure_fedgraph.graph.data.checks import check_inputs
from secure_fedgraph.graph.data.own_graph import NAMES, checked_graph
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.kinds import GraphDataset, GraphSetDataset
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import OF_LINKS, Schema, Task
from secure_fedgraph.models.finite import is_finite
from secure_fedgraph.models.targets import in_units

WHOSE = "data to predict"
"""What messages call them."""
_NOT_READ = ("y", *MASKS, *NAMES, "edge_label", "edge_label_index", "task", "positive", "low", "high")
"""Answers, and words about them."""


def predicted(
    algorithm: Algorithm, released: State, data: Data | Sequence[Data], schema: Schema
) -> tuple[Tensor, list[str]]:
    """A released model's predictions, and notes on what of the data was left out.

    Guarantees:
        - answers in the data, and masks, are not read;
        - the data are not changed.

    Args:
        algorithm: that released the model, with its settings.
        released: the model.
        data: a graph, for each of its nodes; a list of graphs, for each of them.
        schema: what the model was built for.

    Returns:
        The probability of each class ``[n, classes]`` or of each label ``[n, labels]``; or numbers in their
        own unit, ``[n]``.

    Raises:
        BadInput: for data that the model does not read, and for a model that makes no finite numbers of them.
    """
    if schema.task in OF_LINKS or schema.kind not in (GraphDataset.kind, GraphSetDataset.kind):
        what = schema.task if schema.kind == GraphDataset.kind else schema.kind
        raise BadInput(
            f"this model was made for {what}: predictions are of nodes, or of whole graphs, and their "
            "classes, labels or numbers"
        )
    graph, items, notes = _read(data, schema)
    with torch.no_grad():
        outputs = algorithm.predict(released, graph, schema).detach()
    if len(outputs) != items or not is_finite(outputs):
        raise BadInput(
            f"{algorithm.name} gives no finite scores of these data: look for features that are far from "
            "those that it learned from, or train it again"
        )
    if schema.task == Task.NUMBER:
        return in_units(outputs.reshape(items), schema), notes
    return (outputs.sigmoid() if schema.task == Task.LABELS else outputs.softmax(dim=1)), notes


def _read(data: Data | Sequence[Data], schema: Schema) -> tuple[Data, int, list[str]]:
    if schema.kind == GraphDataset.kind:
        if not isinstance(data, Data):
            raise wrong_type(WHOSE, data, "give one PyG Data: the model is of nodes")
        graph, notes = _inputs(data, schema, WHOSE)
        return graph, len(graph.x), notes
    if isinstance(data, Data) or not data:
        raise wrong_type(WHOSE, data, "give a list of PyG Data: the model is of whole graphs")
    graphs, said = list[Data](), dict[str, None]()
    for number, one in enumerate(data):
        graph, notes = _inputs(one, schema, f"{WHOSE}, graph {number}")
        graph.y = torch.zeros(1, dtype=torch.long)
        graphs.append(graph)
        said |= dict.fromkeys(notes)
    return pack(graphs), len(graphs), list(said)


def _inputs(data: Data, schema: Schema, name: str) -> tuple[Data, list[str]]:
    """Features and links, checked as those of owners are."""
    if not isinstance(data, Data):
        raise wrong_type(name, data, "give a PyG Data")
    given = {key: data[key] for key in data.keys() if key not in _NOT_READ}  # noqa: SIM118  # Data's own
    made, notes = plain(Data(**given), name, whole=schema.kind == GraphSetDataset.kind)
    check_inputs(made, name)
    made.y = torch.zeros(len(made.x), dtype=torch.long)
    graph, _, more = checked_graph(made, name, 0)
    notes += more
    del graph.y
    if graph.x.shape[1] != schema.features:
        raise BadInput(
            f"{name}: x has {graph.x.shape[1]} columns, and the model reads {schema.features}: give those "
            "that it was trained on, in their order"
        )
    for key in EDGE_FIELDS:
        held = graph.get(key)
        if key not in schema.edge_fields:
            if held is not None:
                del graph[key]
                notes.append(f"{key} is not used")
            continue
        if held is None:
            raise BadInput(f"{name}: the graph has no {key}, and the owners' graphs had: give it")
        if key == "edge_attr" and (held.shape[1] if held.dim() == 2 else 0) != schema.edge_attr:
            raise BadInput(
                f"{name}: edge_attr has shape {tuple(held.shape)}: give {schema.edge_attr} columns"
            )
    return graph, notes
