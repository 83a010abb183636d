"""Layer-wise sampling: which nodes a layer is computed on, and one client's links between layers."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.sparse_matrix import SparseMatrix


def draw_batch(training: Tensor, size: int, seed: int) -> Tensor:
    """``size`` of the training nodes, or all if they are fewer, ascending.

    Anyone who knows the training nodes and the seed knows the batch.

    >>> nodes = torch.tensor([2, 5, 7])
    >>> draw_batch(nodes, 2, seed=1).tolist() == draw_batch(nodes, 2, seed=1).tolist()
    True
    """
    picked = np.random.default_rng(seed).permutation(len(training))[:size]
    return training[torch.from_numpy(np.sort(picked))]


def public_set(batch: Tensor, nodes: int, size: int, seed: int) -> Tensor:
    """The batch, padded with random nodes to ``size``, ascending: it depends on no owner's links.

    >>> len(public_set(torch.tensor([3, 9]), nodes=20, size=5, seed=0))
    5
    """
    order = torch.from_numpy(np.random.default_rng(seed).permutation(nodes))
    others = order[~torch.isin(order, batch)]
    return torch.cat([batch, others[: max(size - len(batch), 0)]]).sort().values


def grow(table: NeighbourTable, nodes: Tensor, fanout: int, generator: torch.Generator) -> Tensor:
    """The nodes and ``fanout`` drawn neighbours of each, every node once, ascending.

    Neighbours are drawn with replacement, from this owner's own links: drawing from the whole graph would
    show it links of the other owners.
    """
    drawn = table.sample(nodes, fanout, generator).flatten()
    return union([nodes, drawn[drawn >= 0]], table.num_nodes)


def union(sets: Iterable[Tensor], nodes: int) -> Tensor:
    """The union of index sets, ascending.

    >>> union([torch.tensor([4, 1]), torch.tensor([1, 0])], nodes=5).tolist()
    [0, 1, 4]
    """
    mask = torch.zeros(nodes, dtype=torch.bool)
    for some in sets:
        mask[some] = True
    return mask.nonzero().flatten()


@dataclass(frozen=True)
class Links:
    """What one layer sums over: from its input nodes to its output nodes, both by position.

    Args:
        rowptr, source, weight: CSR of ``[outputs, inputs]``, without loops.
        own: ``[outputs]`` the position of each output node among the inputs.
        loop: ``[outputs]`` the weight of a node's own row.
        inputs: the number of input nodes.
    """

    rowptr: Tensor = field(repr=False)
    source: Tensor = field(repr=False)
    weight: Tensor = field(repr=False)
    own: Tensor = field(repr=False)
    loop: Tensor = field(repr=False)
    inputs: int

    @functools.cached_property
    def target(self) -> Tensor:
        """The output position of every link."""
        return torch.repeat_interleave(torch.arange(len(self.own)), self.rowptr.diff())

    def spread(self, x: Tensor) -> Tensor:
        """The normalised sum ``[outputs, width]`` of rows ``[inputs, width]``: one sparse product."""
        return self.rows.times(x)

    @functools.cached_property
    def rows(self) -> SparseMatrix:
        """The links and the nodes' own rows, ``[outputs, inputs]``; a node's own row comes first."""
        outputs = len(self.own)
        starts = self.rowptr + torch.arange(outputs + 1)
        column, value = (
            torch.empty(len(self.source) + outputs, dtype=kind) for kind in (torch.long, torch.float32)
        )
        column[starts[:-1]], value[starts[:-1]] = self.own, self.loop
        at = torch.arange(len(self.source)) + self.target + 1
        column[at], value[at] = self.source, self.weight
        return SparseMatrix(starts, column, value, self.inputs)


def links_between(table: NeighbourTable, inputs: Tensor, outputs: Tensor, loop: float = 1.0) -> Links:
    """The symmetrically normalised adjacency of the subgraph induced on ``inputs``, rows of ``outputs`` only.

    ``D^-1/2 (A + loop I) D^-1/2`` with the degrees of the induced subgraph, loops counted.

    Args:
        table: one owner's links, both directions.
        inputs: ascending distinct nodes.
        outputs: ascending distinct nodes, all of them inputs.
        loop: weight of a node's own row before the normalisation.

    Raises:
        BadInput: for an output that is no input.
    """
    place = torch.full((table.num_nodes,), -1, dtype=torch.long)
    place[inputs] = torch.arange(len(inputs))
    own = place[outputs]
    if len(own) and int(own.min()) < 0:
        raise BadInput("layer sampling: an output node is not among the inputs of its layer")
    degree = table.degree[inputs]
    ends = degree.cumsum(0)
    row = torch.repeat_interleave(torch.arange(len(inputs)), degree)
    at = torch.arange(len(row)) + torch.repeat_interleave(table.rowptr[inputs] - (ends - degree), degree)
    source = place[table.col[at]]
    inside = source >= 0
    row, source = row[inside], source[inside]
    scale = (torch.bincount(row, minlength=len(inputs)).to(torch.float32) + loop).clamp(min=1e-12).rsqrt()
    new = torch.full((len(inputs),), -1, dtype=torch.long)
    new[own] = torch.arange(len(own))
    kept = new[row] >= 0
    row, source = row[kept], source[kept]
    rowptr = torch.zeros(len(own) + 1, dtype=torch.long)
    torch.cumsum(torch.bincount(new[row], minlength=len(own)), 0, out=rowptr[1:])
    return Links(rowptr, source, scale[row] * scale[source], own, loop * scale[own].square(), len(inputs))
