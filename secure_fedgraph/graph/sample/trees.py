"""Neighbour sampling on a graph held by one owner, and the full-neighbourhood mean."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

MISSING = -1
"""The index that stands for "no neighbour": callers put a zero vector in its place."""


_TABLES = WeakIdKeyDictionary()
"""Links of a graph that is still in use -> how often they were changed in place, and their table."""


class NeighbourTable:
    """The in-neighbours of every node, stored as CSR, for sampling with replacement.

    Messages flow along an edge from source to target, so the neighbours of ``v`` are the sources of
    the edges into ``v`` (PyG's convention). A link that occurs twice counts twice.

    Args:
        edge_index: ``[2, E]`` integers in ``[0, num_nodes)``.
        num_nodes: number of nodes, isolated ones included.

    >>> table = NeighbourTable(torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
    >>> table.neighbours(0).tolist(), table.degree.tolist()
    ([1, 2], [2, 0, 0])
    """

    rowptr: Tensor
    col: Tensor
    degree: Tensor

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        source, target = edge_index.long()
        # Sorting by (target, source) makes the table, and so every seeded sample, independent of edge order.
        keys = np.sort((target * num_nodes + source).cpu().numpy())
        self.col = torch.from_numpy(np.remainder(keys, max(num_nodes, 1), out=keys)).to(target.device)
        self.degree = torch.bincount(target, minlength=num_nodes)
        self.rowptr = torch.cat([self.degree.new_zeros(1), self.degree.cumsum(0)])

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int) -> NeighbourTable:
        """The table of a graph's links, sorted once for as long as the tensor is in use and stays as it is.

        >>> links = torch.tensor([[1, 2], [0, 0]])
        >>> NeighbourTable.of(links, 3) is NeighbourTable.of(links, 3)
        True
        """
        version, table = _TABLES.get(edge_index, (None, None))
        if table is None or version != edge_index._version or table.num_nodes != num_nodes:
            table = cls(edge_index, num_nodes)
            _TABLES[edge_index] = edge_index._version, table
        made: NeighbourTable = table
        return made

    @property
    def num_nodes(self) -> int:
        return self.degree.numel()

    def neighbours(self, node: int) -> Tensor:
        """All neighbours of one node, ascending."""
        return self.col[self.rowptr[node] : self.rowptr[node + 1]]

    def sample(self, nodes: Tensor, fanout: int, generator: torch.Generator) -> Tensor:
        """Draw ``fanout`` neighbours of every node, uniformly and with replacement.

        Args:
            nodes: node indices of any shape ``[...]``; ``-1`` is allowed and has no neighbours.
            fanout: draws per node, at least 0.
            generator: the only source of randomness; it may be of another device than the table, so that the
                same seed gives the same neighbours wherever the table lies.

        Returns:
            ``[..., fanout]`` node indices; ``-1`` in every slot of a node without neighbours.
        """
        if self.col.numel() == 0:
            return nodes.new_full((*nodes.shape, fanout), MISSING)
        known = nodes.clamp(min=0)
        degree = torch.where(nodes >= 0, self.degree[known], 0)
        # double: a float32 has too few steps to reach every neighbour of a hub evenly
        uniform = torch.rand(
            (*nodes.shape, fanout), generator=generator, dtype=torch.float64, device=generator.device
        )
        offset = (uniform.to(nodes.device) * degree.unsqueeze(-1)).long()
        slot = (self.rowptr[known].unsqueeze(-1) + offset).clamp(max=self.col.numel() - 1)
        return torch.where(degree.unsqueeze(-1) > 0, self.col[slot], MISSING)

    def sums(self, x: Tensor, rows: slice = slice(None)) -> Tensor:
        """The sums of all neighbours' rows of ``x``, ``[rows, width]``; no gradient flows.

        Neighbours are added one after the other, as ``index_add_`` over sorted links adds them, and no row is
        copied: ``[edges, width]`` would not fit where a graph has many links.

        >>> table = NeighbourTable(torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
        >>> table.sums(torch.tensor([[1.0], [2.0], [4.0]])).flatten().tolist()
        [6.0, 0.0, 0.0]
        """
        start, stop, _ = rows.indices(self.num_nodes)
        ends = self.rowptr[start : stop + 1]
        first, last = int(ends[0]), int(ends[-1])
        return F.embedding_bag(
            self.col[first:last], x.detach(), ends - first, mode="sum", include_last_offset=True
        )

    def sample_tree(self, nodes: Tensor, fanouts: Sequence[int], generator: torch.Generator) -> list[Tensor]:
        """Sample hop after hop: ``[b], [b, f1], [b, f1, f2], ...``; children of ``-1`` are ``-1``."""
        tree = [nodes]
        for fanout in fanouts:
            tree.append(self.sample(tree[-1], fanout, generator))
        return tree

    def mean_matrix(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The ``[N, N]`` sparse CSR matrix that averages over all neighbours.

        ``mean_matrix() @ x`` is the full-neighbourhood counterpart of the mean over ``sample``; the row of
        a node without neighbours is zero.
        """
        weight = self.degree.clamp(min=1).to(dtype).reciprocal().repeat_interleave(self.degree)
        size = (self.num_nodes, self.num_nodes)
        with warnings.catch_warnings():
            # torch announces its CSR layout as beta; the test configuration turns warnings into errors
            warnings.filterwarnings("ignore", message=".*Sparse CSR.*", category=UserWarning)
            return torch.sparse_csr_tensor(self.rowptr, self.col, weight, size=size, check_invariants=True)


def own_tree(nodes: Tensor, depth: int) -> list[Tensor]:
    """Trees in which every node is its own only neighbour: ``[b], [b, 1], [b, 1, 1], ...``; no link is read.

    Args:
        nodes: the roots.
        depth: levels below them.

    >>> [level.tolist() for level in own_tree(torch.tensor([4, 7]), 2)]
    [[4, 7], [[4], [7]], [[[4]], [[7]]]]
    """
    return [nodes.reshape(len(nodes), *[1] * level) for level in range(depth + 1)]
