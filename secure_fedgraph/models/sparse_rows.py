"""Feature rows that are mostly zeros, such as bags of words, and their product with a weight matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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


Features = Tensor | SparseRows


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
