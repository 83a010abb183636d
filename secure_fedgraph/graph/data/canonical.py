"""One node order and one class order for a graph, decided by its content alone.

The same citation graph is handed around with different node and class numbers, and every seed that is
used afterwards (splits, partitions, samples) acts on those numbers. Here they are replaced by numbers that
follow from features, labels and links: iterated colour refinement (Weisfeiler and Leman 1968) on 64-bit
hashes, then individualisation of what is still tied.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from secure_fedgraph.graph.colours import GOLDEN as _GOLDEN
from secure_fedgraph.graph.colours import Colours
from secure_fedgraph.graph.colours import mix as _mix
from secure_fedgraph.graph.colours import sums as _sums
from secure_fedgraph.graph.sample.links import undirected_links

VERSION = 1
"""Version of the rule; part of the name under which its results are kept."""


def canonical(graph: Data) -> Data:
    """The same graph whatever its node numbers, class numbers, link order and link directions were.

    **Guarantees:**

    - two graphs that differ only in those four come out equal, tensor for tensor, if all nodes that
      colour refinement cannot tell apart are interchangeable (so it is for every data set here; regular
      graphs without features are the counterexample);
    - links are undirected, once per direction, without loops and sorted; feature columns stay put.

    Classes are ordered by size, largest first, then by content. Attributes other than ``x``, ``y`` and
    ``edge_index`` are dropped, published split masks among them.

    Args:
        graph: ``x [N, F]`` floating, ``y [N]`` integer, ``edge_index [2, E]``.

    Returns:
        ``Data`` with ``x`` float32 ``[N, F]``, ``y`` and ``edge_index`` int64.
    """
    x = graph.x.to(torch.float32)
    links = _both_ways(graph.edge_index)
    _, y = np.unique(graph.y.numpy(), return_inverse=True)
    features = _row_hashes(x)
    same_class = links[:, y[links[0]] == y[links[1]]]
    # Class numbers mean nothing yet, so this first refinement only knows which ends share a class.
    classless = _refine(features, [links, same_class])
    y = _class_order(y, classless)[y]
    order = _node_order(_refine(_mix(classless ^ _mix(y.astype(np.uint64))), [links]), links)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    links = place[links]
    links = links[:, np.lexsort((links[1], links[0]))]
    return Data(
        x=x[torch.from_numpy(order)], y=torch.from_numpy(y[order]), edge_index=torch.from_numpy(links)
    )


def content_digest(graph: Data) -> str:
    """SHA-256 (hex) of shapes, ``x`` as little-endian float32, sorted ``edge_index`` and ``y`` as int64."""
    edges = _in_order(graph.edge_index.numpy())
    digest = hashlib.sha256()
    for array, kind in ((graph.x.numpy(), "<f4"), (edges, "<i8"), (graph.y.numpy(), "<i8")):
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype=kind).data)
    return digest.hexdigest()


def _in_order(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Columns ascending, repeats kept: by one sort of whole numbers, unless they are in order already."""
    if not edges.size:
        return edges
    width = int(edges[1].max()) + 1
    keys = edges[0].astype(np.int64) * width + edges[1]
    if bool((keys[1:] >= keys[:-1]).all()):
        return edges
    return np.stack(np.divmod(np.sort(keys), width))


def _both_ways(edge_index: torch.Tensor) -> NDArray[np.int64]:
    links = undirected_links(edge_index).numpy()
    return np.concatenate([links, links[::-1]], axis=1)


def _row_hashes(x: torch.Tensor) -> Colours:
    row, column = (x != 0).nonzero(as_tuple=True)
    bits = x[row, column].numpy().view(np.uint32).astype(np.uint64)
    return _mix(_sums(_mix(_mix(column.numpy().astype(np.uint64)) ^ bits), row.numpy(), x.shape[0]))


def _refine(colours: Colours, relations: list[NDArray[np.int64]]) -> Colours:
    """Mix the neighbours' colours in until no more nodes get distinct colours."""
    kinds = -1
    while (seen := len(np.unique(colours))) > kinds:
        kinds = seen
        for links in relations:
            around = _sums(_mix(colours)[links[1]], links[0], len(colours))
            colours = _mix(colours ^ _mix(around))
    return colours


def _class_order(y: NDArray[np.int64], colours: Colours) -> NDArray[np.int64]:
    """The new number of every class."""
    content = _sums(_mix(colours), y, int(y.max()) + 1)
    rank = np.lexsort((content, -np.bincount(y)))
    number = np.empty_like(rank)
    number[rank] = np.arange(len(rank))
    return number


def _node_order(colours: Colours, links: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nodes by colour; a tie is broken by marking one of the tied nodes and refining again.

    Twins (same colour, same neighbours) are all marked at once: swapping them changes nothing.
    """
    while True:
        colours = _mark_twins(colours, links)
        order = np.argsort(colours, kind="stable")
        tied = np.flatnonzero(colours[order][1:] == colours[order][:-1])
        if not len(tied):
            return order
        chosen = np.arange(len(colours)) == order[tied[0]]
        colours = _refine(np.where(chosen, _mix(colours ^ _GOLDEN), colours), [links])


def _mark_twins(colours: Colours, links: NDArray[np.int64]) -> Colours:
    nodes = np.arange(len(colours), dtype=np.uint64)
    around = _sums(_mix(nodes)[links[1]], links[0], len(nodes))
    for key in (around, around + _mix(nodes)):  # not linked to each other, linked to each other
        order = np.lexsort((key, colours))
        same = (colours[order][1:] == colours[order][:-1]) & (key[order][1:] == key[order][:-1])
        starts = np.concatenate([[True], ~same])
        first = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
        nth = np.empty(len(order), dtype=np.uint64)
        nth[order] = (np.arange(len(order)) - first).astype(np.uint64)
        colours = np.where(nth > 0, _mix(colours ^ _mix(nth)), colours)
    return colours
