"""Fields of a PyG ``Data`` in the forms that its users have them, as the plain tensors of this package."""

from __future__ import annotations

import copy
import math
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import MASKS, WHOLE, is_plain
from secure_fedgraph.graph.sample.links import EDGE_FIELDS

FIELDS = ("x", "y", "edge_index", *EDGE_FIELDS, "edge_label_index", "edge_label", *MASKS)
"""Fields that may be NumPy arrays."""
CONVERTED = (torch.bool, *WHOLE, torch.float16, torch.bfloat16)
"""Types of features that become float32, which is said; float64 does so in silence."""
MOST = 2**31
"""Numbers of a sparse matrix that is made dense."""
MOST_NODES = 2**26
"""Of a graph without features: how many nodes it has is then a number that nothing bounds."""


def is_scipy_sparse(value: object) -> bool:
    """Whether it is a sparse matrix of SciPy, which is not loaded for the question."""
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and bool(loaded.issparse(value))


def plain(data: Data, name: str, whole: bool = False) -> tuple[Data, list[str]]:
    """A graph with the fields of another, which is left alone; what is plain already is shared.

    NumPy arrays become tensors; ``adj_t``, as PyG's ``ToSparseTensor`` makes it, ``edge_index`` and what its
    links carry; features of whole numbers, booleans, half precision and of sparse matrices float32. A graph
    without features gets two: a constant, and the logarithm of 1 + the links that end at a node.

    Args:
        data: any graph; what it lacks is not asked for here.
        name: what messages call it.
        whole: whether it is classified whole, so that its ``y`` says nothing of how many nodes it has.

    Returns:
        The graph, and a note on each field that was converted.

    Raises:
        BadInput: for a field that cannot be converted, naming it and the mend.

    >>> made, notes = plain(Data(x=np.eye(2), edge_index=torch.tensor([[0], [1]])), "mine")
    >>> made.x.shape, notes
    (torch.Size([2, 2]), ['x became a tensor, from NumPy'])
    """
    made, notes = copy.copy(data), list[str]()
    arrays = [key for key in FIELDS if isinstance(made.get(key), np.ndarray)]
    for key in arrays:
        made[key] = _tensor(name, key, made[key])
    if arrays:
        became = "became a tensor" if len(arrays) == 1 else "became tensors"
        notes.append(f"{', '.join(arrays)} {became}, from NumPy")
    if made.get("adj_t") is not None and made.get("edge_index") is None:
        notes.append(_links(made, name))
    x = made.get("x")
    if x is None:
        if made.get("edge_index") is not None:
            made.x = _without_features(made, name, whole)
            notes.append("x is missing, so each node has a constant and the logarithm of 1 + its links")
        return made, notes
    if is_scipy_sparse(x) or (isinstance(x, Tensor) and _is_sparse(x)):
        made.x = x = _dense(name, x)
        notes.append(f"x is sparse and became dense, {list(x.shape)}")
    if is_plain(x) and x.dtype in CONVERTED:
        notes.append(f"x of {x.dtype} became float32")
        made.x = x.detach().float()
    return made, notes


def plain_masks(data: Data, rows: int, name: str, column: int | None = None) -> list[str]:
    """Makes a plain graph's masks booleans, a row each, where they are something else that says the same.

    That is one of several splits ``[rows, splits]``, numbers 0 and 1, or the places of what is in the mask.

    Args:
        data: whose masks are replaced; what cannot be converted is left, for the checks that follow.
        rows: how many nodes (or links, or graphs) there are.
        name: what messages call it.
        column: the split that is used; the first by default, which is said.

    Returns:
        Notes on what was converted.

    Raises:
        BadInput: for a split that the masks do not have.
    """
    notes, several = list[str](), list[str]()
    for key in MASKS:
        value = data.get(key)
        if not is_plain(value):
            continue
        if value.dim() == 2 and len(value) == rows:
            splits = value.shape[1]
            if not splits or not 0 <= (column or 0) < splits:
                raise BadInput(
                    f"split = {column}: {name} has {splits} splits in {key}; give 0 to {splits - 1}"
                )
            value = value[:, column or 0]
            several += [key] if splits > 1 else []
            data[key] = value
        if value.dim() == 1 and value.dtype in WHOLE and len(value):
            made = _booleans(value.long(), rows)
            if made is not None:
                data[key], what = made
                notes.append(f"{key} of {what} became booleans")
    if several and column is None:
        notes.append(f"of the splits in {', '.join(several)} the first is used (split = 0)")
    if column and not several:
        raise BadInput(f"split = {column}: {name} has no masks of several splits; leave split out")
    return notes


def _booleans(value: Tensor, rows: int) -> tuple[Tensor, str] | None:
    """Numbers 0 and 1, a row each, or the different places of rows, as booleans; None of other numbers."""
    low, high = (int(end) for end in torch.aminmax(value))
    if len(value) == rows and low >= 0 and high <= 1:
        return value.bool(), "numbers 0 and 1"
    if low < 0 or high >= rows or len(value.unique()) < len(value):
        return None
    return torch.zeros(rows, dtype=torch.bool).index_fill_(0, value, True), "places"


def _tensor(name: str, key: str, value: np.ndarray) -> Tensor:
    """An array of numbers as a tensor."""
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        raise BadInput(f"{name}: {key} is a NumPy array of {value.dtype}; give numbers, such as float32")
    return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("=")))


def _is_sparse(x: Tensor) -> bool:
    return (
        not x.is_nested
        and not x.is_meta
        and x.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
    )


def _dense(name: str, x: Any) -> Tensor:
    """A sparse matrix with all its zeros."""
    if math.prod(x.shape) > MOST:
        raise BadInput(
            f"{name}: x is sparse, and dense {list(x.shape)} would be more than {MOST:,} numbers: give "
            "fewer columns"
        )
    if isinstance(x, Tensor):
        return x.detach().cpu().to_dense()
    return _tensor(name, "x", x.toarray())


def _links(data: Data, name: str) -> str:
    """Puts ``edge_index`` in the place of ``adj_t``, whose rows are targets and whose columns are sources."""
    adjacency, said = data.adj_t, "adj_t became edge_index"
    if isinstance(adjacency, Tensor) and _is_sparse(adjacency):
        entries = adjacency.detach().cpu().to_sparse_coo()
        (row, column), values = entries._indices(), entries._values()
    elif is_scipy_sparse(adjacency):
        entries = adjacency.tocoo()
        row, column, values = (
            _tensor(name, "adj_t", np.asarray(one)) for one in (entries.row, entries.col, entries.data)
        )
    elif callable(getattr(adjacency, "coo", None)):  # of torch_sparse, which need not be installed
        row, column, values = adjacency.coo()
    else:
        raise BadInput(
            f"{name}: adj_t is of type {type(adjacency).__name__} and not sparse: give edge_index [2, edges]"
        )
    data.edge_index = torch.stack([column, row]).long()
    del data.adj_t
    if values is None or (values.dim() == 1 and bool((values == 1).all())):
        return said
    key = "edge_weight" if values.dim() == 1 else "edge_attr"
    if data.get(key) is not None:
        raise BadInput(f"{name}: adj_t has values and {key} stands beside it: leave one of the two out")
    data[key] = values
    return f"{said}, and its values {key}"


def _without_features(data: Data, name: str, whole: bool) -> Tensor:
    links = data.edge_index
    fits = is_plain(links) and links.dim() == 2 and len(links) == 2
    fits = fits and links.dtype in (torch.int32, torch.int64)
    nodes: object = data.num_nodes if "num_nodes" in data else None
    if nodes is None and not whole:
        columns = (data.get(key) for key in ("y", *MASKS))
        nodes = next((len(one) for one in columns if is_plain(one) and one.dim()), None)
    if nodes is None and fits and links.numel():
        nodes = int(links.max()) + 1
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= MOST_NODES:
        found = str(nodes)[:40] if isinstance(nodes, int) else type(nodes).__name__
        raise BadInput(
            f"{name}: x is missing, and how many nodes there are is not to be seen ({found}): give x, or "
            f"num_nodes from 1 to {MOST_NODES}"
        )
    degree = torch.zeros(nodes)
    if fits and links.numel() and int(links.min()) >= 0 and int(links.max()) < nodes:  # else refused below
        degree = torch.bincount(links[1], minlength=nodes).float()
    return torch.stack([torch.ones(nodes), degree.log1p()], dim=1)
