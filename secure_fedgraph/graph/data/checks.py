"""Checks that a graph must pass before anything is computed on it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import FLOATS, WHOLE

LARGEST = 1e9
"""The largest feature or rating that is trained on: squares of sums of such numbers stay within float32."""
AT_ONCE = 2**18
"""Numbers that are checked at once: a matrix that is mapped from a file is never in memory as a whole."""
UNLABELLED = -1
"""The label of a node that has none."""


def check_graph(graph: Data, name: str, classes: int | None = None) -> None:
    """Refuse a graph that cannot be used as given; isolated nodes are fine.

    Args:
        graph: with ``x [N, F]`` floating, ``edge_index [2, E]`` integer and ``y [N]`` integer, -1 where a
            node has no label.
        name: what the messages call it.
        classes: number of classes, if known; else the labels only have to be -1 or more.

    Raises:
        BadInput: one sentence on what is wrong and where.
    """
    _check_tensors(graph, name, ("x", "edge_index", "y"))
    _check_features(graph.x, name)
    _check_labels(graph.y, graph.x.shape[0], name, classes)
    _check_edges(graph.edge_index, graph.x.shape[0], name)


def check_inputs(graph: Data, name: str) -> None:
    """The same of features and links alone.

    Raises:
        BadInput: one sentence on what is wrong and where.
    """
    _check_tensors(graph, name, ("x", "edge_index"))
    _check_features(graph.x, name)
    _check_edges(graph.edge_index, graph.x.shape[0], name)


def _check_tensors(graph: Data, name: str, keys: tuple[str, ...]) -> None:
    for key in keys:
        if not isinstance(graph.get(key), Tensor):
            raise BadInput(f"{name}: the graph has no tensor {key!r}; give x, edge_index and y.")
        if graph[key].is_nested or graph[key].is_meta:
            raise BadInput(f"{name}: {key} is a nested tensor or has no numbers; give a plain tensor.")
        if graph[key].layout is not torch.strided:
            raise BadInput(f"{name}: {key} is {graph[key].layout}; convert it with {key}.to_dense().")


def check_owner(data: Data, owner_name: str) -> None:
    """Refuse an owner that has nothing to train on.

    Args:
        data: the owner's graph with a boolean ``train_mask [N]``.
        owner_name: what the message calls it.

    Raises:
        BadInput: the owner has no nodes, no training node, or features too large to train on.
    """
    check_size(data, owner_name)
    mask = data.get("train_mask")
    if mask is None or not bool(mask.any()):
        nodes = int(data.num_nodes or 0)
        raise BadInput(
            f"{owner_name} has no training nodes (of {nodes} nodes); use fewer owners or another seed."
        )


def check_size(data: Data, name: str) -> None:
    """Refuse numbers so large that a model would overflow: the outcome would depend on where they stand.

    Raises:
        BadInput: naming the place of the largest.
    """
    for key in ("x", "rating", "edge_attr"):
        value = data.get(key)
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
            continue
        sizes = [float(_ends(block).abs().max()) for _, block in _blocks(value)]
        if all(size <= LARGEST for size in sizes):
            continue
        odd = next((n for n, size in enumerate(sizes) if size != size), sizes.index(max(sizes)))  # NaN first
        start, block = next(one for n, one in enumerate(_blocks(value)) if n == odd)
        place = [int(i) for i in torch.unravel_index(block.abs().argmax(), block.shape)]
        place[0] += start
        raise BadInput(
            f"{name}: {key}{place} is {float(value[tuple(place)]):.3g}, and the largest number allowed is "
            f"{LARGEST:.0e}: scale {key}"
        )


def _blocks(value: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows that are checked at once, each block with the number of its first."""
    rows = max(1, AT_ONCE * len(value) // value.numel())
    for start in range(0, len(value), rows):
        yield start, value[start : start + rows]


def _ends(block: Tensor) -> Tensor:
    """The least and the largest number, without a copy of the block; NaN where one is."""
    return torch.stack(torch.aminmax(block))


def _check_features(x: Tensor, name: str) -> None:
    if x.dim() != 2:
        raise BadInput(f"{name}: x has shape {tuple(x.shape)}; give [number of nodes, number of features].")
    if x.shape[0] == 0:
        raise BadInput(f"{name}: the graph has no nodes; give at least one.")
    if x.shape[1] == 0:
        raise BadInput(f"{name}: x has no columns; give each node at least one feature.")
    if x.dtype not in FLOATS:
        raise BadInput(f"{name}: x has type {x.dtype}; convert it with x.float().")
    odd = [(start, block) for start, block in _blocks(x) if not bool(_ends(block.float()).isfinite().all())]
    if odd:
        start, block = odd[0]
        row, column = (~torch.isfinite(block.float())).nonzero()[0].tolist()
        count = sum(int((~torch.isfinite(block.float())).sum()) for _, block in odd)
        raise BadInput(
            f"{name}: {count} features are not finite, the first at node {start + row}, column {column} "
            f"({float(block[row, column])}); replace or drop them."
        )
    check_size(Data(x=x), name)


def _check_labels(y: Tensor, nodes: int, name: str, classes: int | None) -> None:
    if y.dim() != 1 or y.shape[0] != nodes:
        raise BadInput(
            f"{name}: y has shape {tuple(y.shape)} for {nodes} nodes; give one label per node, [{nodes}]."
        )
    if y.dtype not in WHOLE:
        raise BadInput(f"{name}: y has type {y.dtype}; give integer class labels.")
    lowest, highest = int(y.min()), int(y.max())
    if lowest < UNLABELLED:
        node = int((y < UNLABELLED).nonzero()[0])
        raise BadInput(
            f"{name}: node {node} has label {int(y[node])}; labels count from 0, "
            "and -1 says that there is none."
        )
    if highest < 0:
        raise BadInput(f"{name}: no node has a label; give y from 0 for some.")
    if classes is not None and highest >= classes:
        node = int((y >= classes).nonzero()[0])
        raise BadInput(
            f"{name}: node {node} has label {int(y[node])}, but there are {classes} classes "
            f"(0 to {classes - 1}); renumber the labels."
        )


def _check_edges(edge_index: Tensor, nodes: int, name: str) -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise BadInput(
            f"{name}: edge_index has shape {tuple(edge_index.shape)}; give [2, number of edges] "
            f"(sources above targets)."
        )
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise BadInput(f"{name}: edge_index has type {edge_index.dtype}; convert it with edge_index.long().")
    if edge_index.numel() == 0:
        return
    lowest, highest = int(edge_index.min()), int(edge_index.max())
    if lowest < 0 or highest >= nodes:
        given = lowest if lowest < 0 else highest
        raise BadInput(
            f"{name}: edge_index names node {given}, but nodes run from 0 to {nodes - 1}; renumber them."
        )
