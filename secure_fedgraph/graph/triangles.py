"""Triangles above chance of small graphs, piece by connected piece.

What lies in no triangle can be added to a graph without changing what it shows. So none of it is in a
fingerprint, and none of it makes chance smaller: no node without links, no link that is listed twice, no
loop, and no tree or path, whether it hangs on the graph or stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from secure_fedgraph.graph.colours import Colours, mix, sums
from secure_fedgraph.graph.sample.links import undirected_links
from secure_fedgraph.loading import postponed

if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csgraph
else:
    sparse, csgraph = postponed("scipy.sparse"), postponed("scipy.sparse.csgraph")

Numbers = NDArray[np.int64]
Amounts = NDArray[np.float64]
ROUNDS = 4
"""Of the colour refinement that a fingerprint is made by."""


@dataclass(frozen=True)
class Pieces:
    """The connected pieces of some graphs that have triangles.

    Args:
        graph: ``[pieces]`` number of the graph that a piece is of.
        worth: ``[pieces]`` from 0 to 1: its share of its graph's triangles, times how far its own are above
            chance. The pieces of a graph are worth at most 1 together.
        fingerprint: ``[pieces]`` 64 bits of its links that are in triangles: equal for pieces whose triangles
            colour refinement cannot tell apart, whatever features and numbers their nodes have.
    """

    graph: Numbers
    worth: Amounts
    fingerprint: Colours


def pieces_with_triangles(packed: Data) -> Pieces:
    """Every connected piece that has a triangle, of every graph of a union.

    Args:
        packed: as :func:`~secure_fedgraph.graph.sample.packing.pack` gives it; features are not read.
    """
    graph = packed.graph.numpy()
    nodes, (low, high) = len(graph), undirected_links(packed.edge_index).numpy()
    ends = (np.concatenate([low, high]), np.concatenate([high, low]))
    linked = sparse.csr_array((np.ones(2 * len(low)), ends), shape=(nodes, nodes))
    count, component = csgraph.connected_components(linked, directed=False)

    closed = (linked @ linked).multiply(linked).tocoo()  # each link, both ways: how many triangles it is in
    one, other = (closed.coords[axis][closed.data > 0].astype(np.int64) for axis in (0, 1))
    through = closed.data[closed.data > 0]

    inside = np.unique(one)
    triangles = np.bincount(component[one], through, minlength=count) / 6
    corners = np.bincount(component[inside], minlength=count)
    above = above_chance(
        triangles,
        corners,
        others=np.bincount(component, minlength=count) - corners,
        links=np.bincount(component[low], minlength=count),
    )
    colours = _refined(one, other, through.astype(np.uint64), nodes)
    fingerprint = mix(sums(colours[inside], component[inside], count))

    found = triangles > 0
    of_graph = graph[np.unique(component, return_index=True)[1]][found]
    share = triangles[found] / np.bincount(of_graph, triangles[found])[of_graph]
    return Pieces(of_graph, share * above[found], fingerprint[found])


def above_chance(triangles: Amounts, corners: Numbers, others: Numbers, links: Numbers) -> Amounts:
    """A connected piece's triangles above chance: ``max(t - e - sqrt(e), 0) / (t + e)``, from 0 to 1.

    ``e`` is the mean over all graphs of as many nodes as lie in triangles, and of as many links as there are
    less one for each other node. A tree or a path that is added brings as many nodes as links, so ``e`` stays
    as it is; every other link that makes no triangle makes ``e`` larger. Random graphs lie about ``e`` by
    some ``sqrt(e)`` (a rare triangle is a Poisson variable), so that much above it is chance too.

    Args:
        triangles: ``[pieces]``.
        corners: ``[pieces]`` nodes that lie in a triangle.
        others: ``[pieces]`` nodes that lie in none.
        links: ``[pieces]`` all of them.

    >>> strip = np.array([28.0]), np.array([30]), np.array([0]), np.array([57])
    >>> above_chance(*strip).round(2).tolist()
    [0.44]
    """
    some = triangles > 0  # then three nodes and three links are counted at least
    nodes, pairs = np.where(some, corners, 3), np.where(some, corners * (corners - 1) / 2, 3)
    counted = np.where(some, np.minimum(links - others, pairs), 0)
    closed = counted * (counted - 1) * (counted - 2) / (pairs * (pairs - 1) * (pairs - 2))
    chance = nodes * (nodes - 1) * (nodes - 2) / 6 * closed
    above = np.maximum(triangles - chance - np.sqrt(chance), 0)
    return np.where(some, above / np.where(some, triangles + chance, 1), 0.0)


def _refined(one: Numbers, other: Numbers, kind: Colours, nodes: int) -> Colours:
    """``[nodes]`` colours after refinement along links, which differ by how many triangles they are in."""
    colours, kinds = np.zeros(nodes, dtype=np.uint64), mix(kind)
    for _ in range(ROUNDS):
        colours = mix(mix(colours) ^ mix(sums(mix(colours[other] ^ kinds), one, nodes)))
    return colours
