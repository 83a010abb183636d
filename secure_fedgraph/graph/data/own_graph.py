"""A user's own graph: which fields of a PyG ``Data`` are used, which nodes train, warnings on the rest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.data.canonical import content_digest
from secure_fedgraph.graph.data.checks import check_graph
from secure_fedgraph.graph.data.splits import MASKS, stratified
from secure_fedgraph.graph.data.store import digest_of_data
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.graph.seeds import sub_seed

NAME = "your graph"


class DataWarning(UserWarning):
    """A part of a user's data is not used, or something was added to the data."""


def own_dataset(data: Data, seed: int) -> GraphDataset:
    """A user's graph, checked, copied and completed.

    Guarantees:
        - nodes outside a given ``train_mask`` are not trained on; likewise ``val_mask`` and ``test_mask``;
        - nodes with ``y = -1`` are in no mask;
        - every field that is not used, and every mask that was derived, is named in one :class:`DataWarning`;
        - the given graph is not changed, nor do the two share a tensor.

    Args:
        data: ``x [N, F]``, ``edge_index [2, E]`` and ``y [N]``, -1 where a node has no class; optional are
            ``edge_weight [E]``, ``edge_attr [E]`` or ``[E, D]`` and boolean masks ``[N]``.
        seed: of the masks that are derived.

    Raises:
        BadInput: for a graph that cannot be used, naming the field and the mend.
    """
    check_graph(data, NAME)
    _check_classes(data.y)
    graph = Data(
        x=_copied(data.x, torch.float32),
        edge_index=_copied(data.edge_index, torch.long),
        y=_copied(data.y, torch.long),
    )
    notes = list(_dropped(data))
    for key in EDGE_FIELDS:
        if data.get(key) is not None:
            graph[key] = _edge_field(key, data[key], graph.edge_index.shape[1])
    if any(data.get(key) is not None for key in MASKS):
        notes += _masked(graph, data, seed)
    plain = set(graph.keys()) == {"x", "edge_index", "y"}
    if notes:
        warnings.warn(f"{NAME}: {'; '.join(notes)}", DataWarning, stacklevel=4)
    return GraphDataset(
        name=NAME,
        graph=graph,
        source="given",
        digest=content_digest(graph) if plain else digest_of_data(graph),
        features=graph.x.shape[1],
        classes=int(graph.y.max()) + 1,
    )


def _check_classes(y: Tensor) -> None:
    """Labels are the numbers of classes, and a model has an output for each up to the largest."""
    labelled, highest = int((y >= 0).sum()), int(y.max())
    if highest >= labelled:
        raise BadInput(
            f"{NAME}: y has label {highest} at node {int(y.argmax())}, which makes {highest + 1} classes for "
            f"{labelled} labelled nodes; relabel them from 0 without gaps: "
            "y[y >= 0] = y[y >= 0].unique(return_inverse=True)[1]"
        )


def _copied(given: Tensor, kind: torch.dtype) -> Tensor:
    return given.detach().to("cpu", kind, copy=True)


def _dropped(data: Data) -> Iterator[str]:
    used = {"x", "edge_index", "y", "num_nodes", *EDGE_FIELDS, *MASKS}
    dropped = sorted(set(data.keys()) - used)
    if dropped:
        yield f"{', '.join(dropped)} {'is' if len(dropped) == 1 else 'are'} not used"


def _edge_field(key: str, value: object, edges: int) -> Tensor:
    shapes = "[edges]" if key == "edge_weight" else "[edges] or [edges, columns]"
    if not isinstance(value, Tensor):
        raise BadInput(f"{NAME}: {key} is a {type(value).__name__}; give a tensor {shapes}")
    fits = value.dim() in ((1,) if key == "edge_weight" else (1, 2)) and value.shape[0] == edges
    if not fits or value.layout is not torch.strided:
        raise BadInput(f"{NAME}: {key} has shape {tuple(value.shape)} for {edges} edges; give {shapes}")
    if value.is_complex():
        raise BadInput(f"{NAME}: {key} has type {value.dtype}; give real numbers")
    numbers = _copied(value, torch.float32)
    if not bool(torch.isfinite(numbers).all()):
        row = int((~torch.isfinite(numbers)).nonzero()[0, 0])
        raise BadInput(f"{NAME}: {key} is not finite, first at edge {row}; replace or drop it")
    return numbers


def _masked(graph: Data, data: Data, seed: int) -> list[str]:
    """Sets the graph's three masks; returns notes on nodes that were left out and on derived masks."""
    nodes, labelled = len(graph.y), graph.y >= 0
    given = {key: _mask(key, data[key], nodes) for key in MASKS if data.get(key) is not None}
    for first, second in combinations(given, 2):
        both = given[first] & given[second]
        if bool(both.any()):
            raise BadInput(
                f"{NAME}: {int(both.sum())} nodes are in {first} and in {second}, the first is node "
                f"{int(both.nonzero()[0])}; put each into one"
            )
    notes = []
    for key, mask in given.items():
        without = int((mask & ~labelled).sum())
        if without:
            notes.append(
                f"{without} of {int(mask.sum())} nodes in {key} have no label and are left out of it"
            )
        given[key] = mask & labelled
    if "train_mask" in given and not bool(given["train_mask"].any()):
        raise BadInput(f"{NAME}: train_mask names no node with a label; give at least one")
    rest = labelled.clone()
    for mask in given.values():
        rest &= ~mask
    missing = [key for key in MASKS if key not in given]
    derived = _derived(rest, graph.y, missing, seed)
    for key, mask in derived.items():
        notes.append(
            f"{key} is missing, so {int(mask.sum())} labelled nodes of no other mask are taken for it"
        )
    for key in MASKS:
        graph[key] = given[key] if key in given else derived[key]
    if not bool(graph.test_mask.any()):
        raise BadInput(f"{NAME}: no labelled node is left to test on; give a test_mask that names some")
    if not bool(graph.train_mask.any()):
        raise BadInput(f"{NAME}: no labelled node is left to train on; give a train_mask that names some")
    return notes


def _derived(rest: Tensor, y: Tensor, missing: list[str], seed: int) -> dict[str, Tensor]:
    """The missing masks: all labelled nodes that are in no given mask, divided class by class."""
    shares = {
        ("train_mask",): (1.0, 0.0),
        ("val_mask",): (1.0, 0.0),
        ("test_mask",): (1.0, 0.0),
        ("train_mask", "val_mask"): (0.75, 0.25),
        ("train_mask", "test_mask"): (0.75, 0.25),
        ("val_mask", "test_mask"): (0.5, 0.5),
    }
    if not missing:
        return {}
    first, second = shares[tuple(missing)]
    parts = stratified(torch.where(rest, y, -1), sub_seed(seed, "missing masks"), first, second)
    return dict(zip(missing, parts, strict=False))


def _mask(key: str, value: object, nodes: int) -> Tensor:
    if not isinstance(value, Tensor):
        raise BadInput(f"{NAME}: {key} is a {type(value).__name__}; give booleans [{nodes}]")
    if value.dim() == 2 and value.shape[0] == nodes:
        raise BadInput(
            f"{NAME}: {key} has shape {tuple(value.shape)}, which is {value.shape[1]} splits; choose one, "
            f"such as data.{key} = data.{key}[:, 0], and the same of the other masks"
        )
    if value.shape != (nodes,):
        raise BadInput(
            f"{NAME}: {key} has shape {tuple(value.shape)} for {nodes} nodes; give booleans [{nodes}]"
        )
    if value.dtype != torch.bool:
        raise BadInput(f"{NAME}: {key} has type {value.dtype}; convert it with {key}.bool()")
    return _copied(value, torch.bool)
