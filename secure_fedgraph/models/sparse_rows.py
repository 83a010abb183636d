"""Feature rows that are mostly zeros, such as bags of words, and their product with a weight matrix."""

from __future__ import annotations

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from secure_fedgraph.graph.sparse_matrix import SparseMatrix

SPARSE_BELOW = 0.1
"""Share of non-zeros up to which the sparse product is the faster one."""
Features = Tensor | SparseMatrix
_COMPACT = WeakIdKeyDictionary()
"""A matrix that is in use -> how often it was changed in place, and its rows as they multiply fastest."""


def compact_of(x: Tensor, below: float = SPARSE_BELOW) -> Features:
    """:func:`compact`, made once for as long as the tensor is in use and stays as it is.

    Args:
        below: share of non-zeros up to which rows are kept by them.
    """
    version, kept = _COMPACT.get(x, (None, None))
    if version != x._version:
        kept = SparseMatrix.of(x) if int(x.count_nonzero()) <= below * x.numel() else None
        _COMPACT[x] = x._version, kept
    return x if kept is None else kept


def compact(x: Tensor) -> Features:
    """The rows as they are multiplied fastest: by their non-zeros where these are few."""
    few = int(x.count_nonzero()) <= SPARSE_BELOW * x.numel()
    return SparseMatrix.of(x) if few else x


def chosen(x: Features, rows: Tensor) -> Features:
    """These rows of either kind."""
    return x.select(rows) if isinstance(x, SparseMatrix) else x.index_select(0, rows)


def product(x: Features, weight: Tensor) -> Tensor:
    """``x @ weight`` of either kind."""
    return x.times(weight) if isinstance(x, SparseMatrix) else x @ weight
