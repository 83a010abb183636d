"""Checks that a graph must pass before anything is computed on it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import FLOATS, WHOLE, tensor_of

LARGEST = 1e9
"""The largest feature or rating that is trained on: squares of sums of such numbers stay within float32."""
AT_ONCE = 2**18
"""Numbers that are checked at once: a matrix that is mapped from a file is never in memory as a whole."""
UNLABELLED = -1
"""The label of a node that has none."""


def check_graph(graph: Data, name: str) -> None:
    """Refuse a graph that cannot be used as given; isolated nodes are fine.

    Args:
        graph: with ``x [N, F]`` floating, ``edge_index [2, E]`` integer and ``y [N]`` integer, -1 where a
            node has no label.
        name: what the messages call it.

    Raises:
        BadInput: one sentence on what is wrong and where.
    """
    check_inputs(graph, name)
    y = tensor_of(graph.get("y"), f"{name}: y", WHOLE, (len(graph.x),), "one integer class label per node")
    if int(y.min()) < UNLABELLED:
        node = int((y < UNLABELLED).nonzero()[0])
        raise BadInput(
            f"{name}: node {node} has label {int(y[node])}; labels count from 0, "
            "and -1 says that there is none."
        )
    if int(y.max()) < 0:
        raise BadInput(f"{name}: no node has a label; give y from 0 for some.")


def check_inputs(graph: Data, name: str) -> None:
    """The same of features and links alone.

    Raises:
        BadInput: one sentence on what is wrong and where.
    """
    real = "real numbers [nodes, features], x.float() of others"
    x = tensor_of(graph.get("x"), f"{name}: x", FLOATS, (None, None), real)
    if not x.numel():
        raise BadInput(f"{name}: x has shape {tuple(x.shape)}; give one node and one feature at least.")
    check_size(Data(x=x), name)
    pairs = "whole numbers [2, edges], sources above targets"
    links = tensor_of(
        graph.get("edge_index"), f"{name}: edge_index", (torch.int64, torch.int32), (2, None), pairs
    )
    if links.numel() and not 0 <= int(links.min()) <= int(links.max()) < len(x):
        given = int(links.min() if int(links.min()) < 0 else links.max())
        raise BadInput(
            f"{name}: edge_index names node {given}, but nodes run from 0 to {len(x) - 1}; renumber them."
        )


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
    """Refuse numbers that are not finite, or so large that a model would overflow.

    Raises:
        BadInput: naming the place of the largest.
    """
    for key in ("x", "rating", "edge_attr"):
        value = data.get(key)
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
            continue
        # without a copy of the block; NaN where one is
        sizes = [float(torch.stack(torch.aminmax(block)).abs().max()) for _, block in _blocks(value)]
        if all(size <= LARGEST for size in sizes):
            continue
        odd = next((n for n, size in enumerate(sizes) if size != size), sizes.index(max(sizes)))  # NaN first
        start, block = next(one for n, one in enumerate(_blocks(value)) if n == odd)
        place = [int(i) for i in torch.unravel_index(block.abs().argmax(), block.shape)]
        place[0] += start
        raise BadInput(
            f"{name}: {key}{place} is {float(value[tuple(place)]):.3g}, and numbers up to {LARGEST:.0e} are "
            f"allowed: scale {key}, and leave out what is not finite"
        )


def _blocks(value: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows that are checked at once, each block with the number of its first."""
    rows = max(1, AT_ONCE * len(value) // value.numel())
    for start in range(0, len(value), rows):
        yield start, value[start : start + rows]
