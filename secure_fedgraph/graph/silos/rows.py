"""Owners of rows: each has a graph of its own, or a set of graphs, with the columns that all have."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import Target, check_varied, task_of
from secure_fedgraph.graph.conversions import plain
from secure_fedgraph.graph.data.checks import check_owner
from secure_fedgraph.graph.data.own_graph import NAMES, DataWarning, checked_graph, named_columns
from secure_fedgraph.graph.data.splits import MASKS, stratified
from secure_fedgraph.graph.kinds import GraphDataset, GraphSetDataset
from secure_fedgraph.graph.own.sets import checked_set, unmasked
from secure_fedgraph.graph.partition.result import TestSet
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import NO_EDGE_ATTR, Schema, Task
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.graph.silos.agreement import Declaration, agreed, class_names
from secure_fedgraph.graph.silos.result import Silos


def owners_of_rows(
    given: Mapping[str, Data | Sequence[Data]],
    seed: int,
    classes: int | None,
    holders: int,
    task: str | None = None,
    column: int | None = None,
    notes: Sequence[str] = (),
) -> Silos:
    """Owners with a graph each, of whose nodes (or links) something is learned, or with a set of graphs each.

    Guarantees:
        - an owner's masks are kept to; where it has none, its labelled nodes are split 60/20/20, class by
          class, by a sub-seed of its own, and of its graphs a tenth is test;
        - no test label leaves its owner: the referee has none;
        - the given graphs are not changed.

    Args:
        given: each owner's graph or graphs, by name, sorted. Of a set, a graph's ``y`` is its class (or
            number, or labels), and its masks have one entry.
        seed: of the splits.
        classes: how many there are, where that is known.
        holders: how many owners may hold the same node or graph.
        task: what is learned, where the answers of all owners together do not show it.
        column: which of several splits is used.
        notes: what was converted before.

    Raises:
        BadInput: for a graph that cannot be used or does not fit the others', naming its owner.
    """
    graphs = {name: one for name, one in given.items() if isinstance(one, Data)}
    task = task or (_shown_by(graphs) if graphs else None)
    owners, declared, said = dict[str, Data](), dict[str, Declaration](), list(notes)
    for number, (name, data) in enumerate(given.items()):
        owners[name], declared[name], more = one_owner(name, number, data, seed, task, column)
        said += more
    schema = _agreed(owners, declared, GraphDataset.kind if graphs else GraphSetDataset.kind, classes, said)
    if not any(bool(graph.test_mask.any()) for graph in owners.values()):
        raise BadInput(
            "no owner has a node or graph to test on: mark some of one owner's (test_mask, or 'test' in a "
            "table's split column), or give no split at all"
        )
    if graphs:
        facts: dict[str, object] = {"sizes": [int(graph.num_nodes or 0) for graph in owners.values()]}
    else:
        counts = [len(graph.y) for graph in owners.values()]
        facts = {"graphs": sum(counts), "sizes": counts}
        for graph, start in zip(owners.values(), np.cumsum([0, *counts[:-1]]), strict=True):
            graph.graph_id = torch.arange(len(graph.y)) + int(start)
    facts |= {"holders": holders} if holders > 1 else {}
    return Silos(schema, owners, no_test_set(), facts, _names(declared))


def one_owner(
    name: str,
    number: int,
    data: Data | Sequence[Data],
    seed: int,
    task: str | None = None,
    column: int | None = None,
) -> tuple[Data, Declaration, list[str]]:
    """One owner's graph, or its set as one union of graphs: as :func:`one_graph`."""
    if isinstance(data, Data):
        return one_graph(name, number, data, seed, task, column)
    checked, target, said = checked_set(data, name, task, column)
    packed = _packed(name, checked, sub_seed(seed, f"local split/{number}"))
    check_owner(packed, name)
    return packed, _declared(data[0], packed, target, name), [f"{name}: {one}" for one in said]


def one_graph(
    name: str, number: int, data: Data, seed: int, task: str | None = None, column: int | None = None
) -> tuple[Data, Declaration, list[str]]:
    """One owner's graph, checked and with masks; no other owner's data has a part in it.

    Args:
        name: the owner's.
        number: its place among the owners' sorted names: its split has a seed of its own.
        data: as it was given.
        seed: of the run.
        task: what is learned, where that is known.
        column: which of several splits is used.

    Returns:
        The graph, what its owner declares about it, and notes on fields that were converted or are not used.

    Raises:
        BadInput: for a graph that cannot be used, naming its owner.
    """
    graph, target, said = checked_graph(
        data, name, seed, needs=("train_mask",), also=NAMES, task=task, column=column
    )
    if graph.get("train_mask") is None:
        masks = stratified(graph.y, sub_seed(seed, f"split/{number}"))
        graph.train_mask, graph.val_mask, graph.test_mask = masks
    check_owner(graph, name)
    return graph, _declared(data, graph, target, name), [f"{name}: {one}" for one in said]


def in_numbers_of(every: Sequence[str], graph: Data, own: Sequence[str]) -> None:
    """Numbers a graph's labels by the names of all owners' classes, where classes have names.

    Args:
        every: the names of all owners' classes, sorted; empty where labels are numbers.
        graph: whose labels count in ``own``; it is changed.
        own: the names of its owner's classes.
    """
    if every:
        place = torch.tensor([every.index(one) for one in own])
        graph.y = torch.where(graph.y >= 0, place[graph.y.clamp(min=0)], graph.y)
        if graph.get("edge_label") is not None:
            graph.edge_label = graph.y


def _shown_by(given: Mapping[str, Data]) -> str | None:
    """The task that all owners' answers show together, where none of them names one."""
    if any(one.get(key) is not None for one in given.values() for key in ("task", "edge_label")):
        return None
    return task_of(plain(data, name)[0].get("y") for name, data in given.items())


def _agreed(
    owners: Mapping[str, Data],
    declared: Mapping[str, Declaration],
    kind: str,
    classes: int | None,
    said: Sequence[str],
) -> Schema:
    """The owners' schema, after labels are numbered as all agreed, and are enough to learn from."""
    if said:
        warnings.warn("; ".join(said), DataWarning, stacklevel=6)
    schema = agreed(declared, kind, classes)
    if schema.task in (Task.CLASSES, Task.LINK_CLASSES):
        _renumber(owners, declared)
        _check_labels(owners, schema.classes)
    if schema.task != Task.LINKS:
        check_varied([graph.y for graph in owners.values()], "all owners together")
    return schema


def _packed(name: str, graphs: Sequence[Data], seed: int) -> Data:
    if not graphs:
        raise BadInput(f"{name} has no graph with an answer: give at least one")
    packed = pack(unmasked(graphs))
    given = any(graph.get(key) is not None for graph in graphs for key in MASKS)
    if not given:
        masks: tuple[torch.Tensor, ...] = stratified(packed.y, seed, 0.9, 0.0)
    else:
        masks = tuple(_graph_mask(name, graphs, key) for key in MASKS)
        if bool((torch.stack(masks).sum(0) > 1).any()):
            raise BadInput(f"{name}: some graphs are in two masks; put each into one")
    if not bool(masks[0].any()):
        raise BadInput(f"{name}: train_mask names no graph; give at least one")
    for key, mask in zip(MASKS, masks, strict=True):
        packed[key] = mask
    return packed


def _graph_mask(name: str, graphs: Sequence[Data], key: str) -> torch.Tensor:
    values = []
    for number, graph in enumerate(graphs):
        mask = graph.get(key)
        if mask is None:
            raise BadInput(f"{name}: graph {number} has no {key} of one boolean, and other graphs have masks")
        values.append(bool(mask))
    return torch.tensor(values)


def _declared(data: Data, graph: Data, target: Target, name: str) -> Declaration:
    attributes = graph.get("edge_attr")
    columns = NO_EDGE_ATTR if attributes is None else 0 if attributes.dim() == 1 else attributes.shape[1]
    features, classes = named_columns(data, graph, target, name)
    return Declaration(
        graph.x.shape[1],
        len(classes) or target.outputs,
        features,
        classes,
        graph.get("edge_weight") is not None,
        columns,
        str(target.task),
        target.positive,
        target.low,
        target.high,
        target.ranged,
    )


def _renumber(owners: Mapping[str, Data], declared: Mapping[str, Declaration]) -> None:
    every = class_names(declared)
    for name, graph in owners.items():
        in_numbers_of(every, graph, declared[name].class_names)


def _check_labels(owners: Mapping[str, Data], classes: int) -> None:
    """More classes than labelled nodes come of labels that are not numbers of classes, such as ids."""
    labelled = sum(int((graph.y >= 0).sum()) for graph in owners.values())
    if classes > labelled:
        name = max(owners, key=lambda one: int(owners[one].y.max()))
        raise BadInput(
            f"{name} has label {int(owners[name].y.max())}, which makes {classes} classes for {labelled} "
            "labelled nodes: relabel them from 0 without gaps, the same way at every owner"
        )


def no_test_set() -> TestSet:
    """What the referee has where owners test on their own nodes: nothing."""
    return TestSet(Data(), torch.zeros(0, dtype=torch.long), {}, {}, own_tests=True)


def _names(declared: Mapping[str, Declaration]) -> dict[str, tuple[str, ...]]:
    """What owners call features and classes, as they agreed; nothing where they name none."""
    features: tuple[str, ...] = next(
        (one.feature_names for one in declared.values() if one.feature_names), ()
    )
    return {"feature_names": features, "class_names": class_names(declared)}
