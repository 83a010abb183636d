"""What a whole graph looks like, in a few numbers: sizes, labels, degrees, triangles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.loading import postponed

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = postponed("scipy.sparse")

DEGREES = (0, 1, 2, 3, 4, 5, 7, 10, 20)
"""The least degree of each bin."""
FEW = 8
"""Labels of nodes of which pairs over links are counted; more would make most pairs rare."""
_USUAL = {"nodes": (3.5, 2.0), "links": (4.5, 2.0), "triangles": (2.5, 2.5)}
"""Logarithm -> what it is in a graph of some tens of nodes, and how far it goes from there. Numbers are taken
from what is usual, or every record would point the same way, and noise would drown what tells them apart."""
_CONSTANT, _CLUSTERING = 0.2, 0.3


def width(schema: Schema) -> int:
    """How many numbers describe a graph."""
    labels = _labels(schema)
    return 5 + 2 * labels + len(DEGREES) + (labels * (labels + 1) // 2 if labels <= FEW else 0)


def descriptors(graph: Data, schema: Schema) -> Tensor:
    """Numbers that describe each graph of a packed set: ``[graphs, width]``, rows of length 1.

    They are a constant; the logarithms of the numbers of nodes, links and triangles; the mean clustering
    coefficient; the share of nodes of each label (the mean of features that are no labels), and the variance
    of neighbours' mean labels; the share of nodes in each bin of degrees; where labels are few, the share of
    links between each pair of them. All are taken from what is usual in small graphs, by constants that no
    data chose. Each is of one graph, so one graph is one record.

    Args:
        graph: as :func:`~secure_fedgraph.graph.sample.packing.pack` gives it.
        schema: of the set.
    """
    count = int(graph.graph.max()) + 1 if len(graph.graph) else 0
    if graph.get("y") is not None:
        count = len(graph.y)
    x, of, links = _one_hot(graph.x, schema), graph.graph, _simple(graph)
    n = len(of)
    nodes = torch.bincount(of, minlength=count).double()
    ends = torch.bincount(of[links[0]], minlength=count).double()
    degree = torch.bincount(links[0], minlength=n)
    neighbours = torch.zeros_like(x).index_add_(0, links[0], x[links[1]]) / degree.clamp(min=1)[:, None]
    closed = _closed_paths(links, n)
    possible = (degree * (degree - 1)).double()
    clustering = torch.where(possible > 0, closed / possible.clamp(min=1), 0.0)
    bins = torch.bucketize(degree, torch.tensor(DEGREES), right=True) - 1

    def mean(values: Tensor) -> Tensor:
        total = torch.zeros(count, *values.shape[1:], dtype=torch.float64).index_add_(0, of, values.double())
        return total / nodes.clamp(min=1).reshape(-1, *[1] * (values.dim() - 1))

    spread = (mean(neighbours**2) - mean(neighbours) ** 2).clamp(min=0)
    triangles = mean(closed[:, None])[:, 0] * nodes / 6
    logs = {"nodes": nodes, "links": ends, "triangles": triangles}
    columns = [
        torch.full((count,), _CONSTANT, dtype=torch.float64),
        *((logs[name].log1p() - usual) / far for name, (usual, far) in _USUAL.items()),
        mean(clustering[:, None])[:, 0] - _CLUSTERING,
    ]
    shares = [mean(x) - 1 / x.shape[1], mean(F.one_hot(bins, len(DEGREES))) - 1 / len(DEGREES)]
    blocks = [torch.stack(columns, dim=1), spread, *shares]
    if _labels(schema) <= FEW:
        pairs = _pairs(x, of[links[0]], links, ends)
        blocks.append(pairs - 1 / pairs.shape[1])
    return F.normalize(torch.cat(blocks, dim=1).nan_to_num(), dim=1).float()


def _labels(schema: Schema) -> int:
    return schema.atoms[0] if schema.atoms else schema.features


def _one_hot(x: Tensor, schema: Schema) -> Tensor:
    """Labels of nodes; of categories the first."""
    if schema.atoms:
        return F.one_hot(x[:, 0].long().clamp(0, schema.atoms[0] - 1), schema.atoms[0]).double()
    return x.double()


def _simple(graph: Data) -> Tensor:
    """Links without loops, each once in each direction."""
    row, column = graph.edge_index
    keep = row != column
    pairs = torch.stack([row[keep], column[keep]])
    simple: Tensor = torch.unique(torch.cat([pairs, pairs.flip(0)], dim=1), dim=1)
    return simple


def _closed_paths(links: Tensor, nodes: int) -> Tensor:
    """Twice the triangles at each node."""
    row, column = links.numpy()
    adjacency = sparse.csr_array((np.ones(len(row)), (row, column)), shape=(nodes, nodes))
    closed = (adjacency @ adjacency).multiply(adjacency).sum(axis=1)
    return torch.from_numpy(np.asarray(closed)).double()


def _pairs(x: Tensor, of: Tensor, links: Tensor, ends: Tensor) -> Tensor:
    labels = x.shape[1]
    both = (x[links[0]][:, :, None] * x[links[1]][:, None, :]).reshape(-1, labels * labels)
    total = torch.zeros(len(ends), labels * labels, dtype=torch.float64).index_add_(0, of, both)
    share = (total / ends.clamp(min=1)[:, None]).reshape(-1, labels, labels)
    above = torch.triu_indices(labels, labels)
    once = torch.where(above[0] == above[1], 0.5, 1.0)
    return (share + share.transpose(1, 2))[:, above[0], above[1]] * once
