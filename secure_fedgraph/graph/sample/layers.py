"""Layer-wise sampling: which nodes a layer is computed on, and one client's links between layers."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.core.errors import BadInput
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
        rowptr, outputs = self.rowptr.numpy(), len(self.own)
        starts = rowptr + np.arange(outputs + 1)
        column = np.empty(len(self.source) + outputs, dtype=np.int64)
        value = np.empty(len(column), dtype=np.float32)
        column[starts[:-1]], value[starts[:-1]] = self.own.numpy(), self.loop.numpy()
        # each link behind the own rows of its node and of all nodes before
        at = np.arange(len(self.source)) + np.repeat(np.arange(1, outputs + 1), np.diff(rowptr))
        column[at], value[at] = self.source.numpy(), self.weight.numpy()
        return SparseMatrix(
            torch.from_numpy(starts), torch.from_numpy(column), torch.from_numpy(value), self.inputs
        )


class InducedLinks:
    """One owner's links between some nodes, symmetrically normalised: ``D^-1/2 (A + loop I) D^-1/2``.

    Degrees are those of the subgraph induced on the nodes, loops counted. Layers with the same input nodes
    share one of these.

    Args:
        table: one owner's links, both directions.
        inputs: ascending distinct nodes.
        loop: weight of a node's own row before the normalisation.
    """

    def __init__(self, table: NeighbourTable, inputs: Tensor, loop: float = 1.0) -> None:
        nodes, first, degree = inputs.numpy(), table.rowptr.numpy(), table.degree.numpy()
        self.inputs, self._loop = inputs, loop
        self._place = np.full(table.num_nodes, -1, dtype=np.int64)
        self._place[nodes] = np.arange(len(nodes))
        degree = degree[nodes]
        ends = np.cumsum(degree)
        at = np.repeat(first[nodes] - ends + degree, degree)
        at += np.arange(len(at))
        source, row = self._place[table.col.numpy()[at]], np.repeat(np.arange(len(nodes)), degree)
        inside = source >= 0
        self._source, self._row = source[inside], row[inside]
        self._degree = np.bincount(self._row, minlength=len(nodes))
        scale = torch.from_numpy(self._degree.astype(np.float32)).add_(loop).clamp_(min=1e-12).rsqrt_()
        self._scale = scale.numpy()

    def onto(self, outputs: Tensor) -> Links:
        """The rows of these nodes.

        Args:
            outputs: ascending distinct nodes, all of them inputs.

        Raises:
            BadInput: for an output that is no input.
        """
        own, size, scale = self._place[outputs.numpy()], len(self.inputs), self._scale
        if len(own) and int(own.min()) < 0:
            raise BadInput("layer sampling: an output node is not among the inputs of its layer")
        row, source = self._row, self._source
        if len(own) < size:
            chosen = np.zeros(size, dtype=bool)
            chosen[own] = True
            kept = chosen[row]
            row, source = row[kept], source[kept]
        rowptr = np.zeros(len(own) + 1, dtype=np.int64)
        np.cumsum(self._degree[own], out=rowptr[1:])
        weight, around = scale[row] * scale[source], np.float32(self._loop) * np.square(scale[own])
        return Links(
            torch.from_numpy(rowptr),
            torch.from_numpy(source),
            torch.from_numpy(weight),
            torch.from_numpy(own),
            torch.from_numpy(around),
            size,
        )


def links_between(table: NeighbourTable, inputs: Tensor, outputs: Tensor, loop: float = 1.0) -> Links:
    """The links of :class:`InducedLinks` onto some of its nodes.

    Args:
        table, inputs, loop: as it takes them.
        outputs: ascending distinct nodes, all of them inputs.

    Raises:
        BadInput: for an output that is no input.
    """
    return InducedLinks(table, inputs, loop).onto(outputs)
