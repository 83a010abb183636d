"""Feature rows that are mostly zeros, such as bags of words, and their product with a weight matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from secure_fedgraph.graph.sample.layers import stable_order

SPARSE_BELOW = 0.1
"""Share of non-zeros up to which the sparse product is the faster one."""


@dataclass(frozen=True)
class SparseRows:
    """Rows of a matrix by their non-zeros.

    Args:
        columns: ``[nonzeros]`` int64, row after row.
        starts: ``[rows + 1]`` where each row begins.
        values: ``[nonzeros]``; None where all are 1.

    >>> rows = SparseRows.of(torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 1.0]]))
    >>> rows.select(torch.tensor([2, 0, 1])).times(torch.tensor([[1.0], [10.0]])).flatten().tolist()
    [11.0, 20.0, 0.0]
    """

    columns: Tensor
    starts: Tensor
    values: Tensor | None

    @classmethod
    def of(cls, x: Tensor) -> SparseRows:
        """The non-zeros of ``[rows, columns]``."""
        row, column = x.nonzero(as_tuple=True)
        nonzeros = x[row, column]
        counts = torch.bincount(row, minlength=len(x))
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return cls(column, starts, None if bool((nonzeros == 1).all()) else nonzeros)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def select(self, rows: Tensor) -> SparseRows:
        """These rows, in this order."""
        counts = self.starts[rows + 1] - self.starts[rows]
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        # where each non-zero of the chosen rows stands among all of them
        shift = (self.starts[rows] - starts[:-1]).repeat_interleave(counts)
        place = torch.arange(len(shift)) + shift
        return SparseRows(self.columns[place], starts, None if self.values is None else self.values[place])

    def times(self, weight: Tensor) -> Tensor:
        """The product with ``[columns, outputs]``."""
        product: Tensor = F.embedding_bag(
            self.columns,
            weight,
            self.starts,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )
        return product

    def linear(self, weight: Tensor) -> Tensor:
        """The product with a linear layer's weights ``[outputs, columns]``.

        The gradient is summed column by column, in the order of the rows.

        >>> weight = torch.tensor([[1.0, 10.0]], requires_grad=True)
        >>> SparseRows.of(torch.tensor([[0.0, 2.0], [3.0, 0.0]])).linear(weight).sum().backward()
        >>> weight.grad.tolist()
        [[3.0, 2.0]]
        """
        product: Tensor = _Linear.apply(weight, self)  # type: ignore[no-untyped-call]  # torch types no Function
        return product


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: SparseRows) -> Tensor:
        ctx.rows, ctx.columns = rows, weight.shape[1]
        return rows.times(weight.t().contiguous())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rows: SparseRows = ctx.rows
        order = stable_order(rows.columns, ctx.columns)
        row = torch.repeat_interleave(torch.arange(len(rows)), rows.starts.diff())[order]
        starts = torch.zeros(ctx.columns + 1, dtype=torch.long)
        torch.cumsum(torch.bincount(rows.columns, minlength=ctx.columns), 0, out=starts[1:])
        values = None if rows.values is None else rows.values[order]
        summed = F.embedding_bag(
            row, gradient, starts, mode="sum", per_sample_weights=values, include_last_offset=True
        )
        return summed.t(), None


Features = Tensor | SparseRows
_COMPACT = WeakIdKeyDictionary()
"""A matrix that is in use -> how often it was changed in place, and its rows as they multiply fastest."""


def compact_of(x: Tensor, below: float = SPARSE_BELOW) -> Features:
    """:func:`compact`, made once for as long as the tensor is in use and stays as it is.

    Args:
        below: share of non-zeros up to which rows are kept by them.
    """
    version, kept = _COMPACT.get(x, (None, None))
    if version != x._version:
        kept = SparseRows.of(x) if int(x.count_nonzero()) <= below * x.numel() else None
        _COMPACT[x] = x._version, kept
    return x if kept is None else kept


def compact(x: Tensor) -> Features:
    """The rows as they are multiplied fastest: by their non-zeros where these are few."""
    few = int(x.count_nonzero()) <= SPARSE_BELOW * x.numel()
    return SparseRows.of(x) if few else x


def chosen(x: Features, rows: Tensor) -> Features:
    """These rows of either kind."""
    return x.select(rows) if isinstance(x, SparseRows) else x.index_select(0, rows)


def product(x: Features, weight: Tensor) -> Tensor:
    """``x @ weight`` of either kind."""
    return x.times(weight) if isinstance(x, SparseRows) else x @ weight
