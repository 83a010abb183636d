"""What other libraries call a graph or a data set, as PyG ``Data``; nothing of them is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.utils import from_networkx

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS

PARTS = dict(zip(MASKS, ("train", "valid", "test"), strict=True))
"""Of a data set of OGB's, the names of the parts of its split."""
MEANT = ("x", "y", *MASKS)
"""Attributes of nodes that mean the same in NetworkX as in PyG."""


def brought(given: object, name: str) -> tuple[Data | list[Data] | None, list[str]]:
    """PyG's form of a graph of NetworkX, and of a data set object of PyG or OGB; a ``Data`` is itself.

    A data set of one graph is that graph, with the data set's own split where it is OGB's. One of several
    graphs is a list.

    Args:
        given: anything.
        name: what messages call it.

    Returns:
        The graph, or the graphs, and notes; None for what is neither.

    Raises:
        BadInput: for a graph of several kinds of nodes, and for an object that fails when it is read.
    """
    if isinstance(given, HeteroData):
        raise BadInput(
            f"{name} is a HeteroData, with several kinds of nodes or links, and one kind is learned from: "
            "give data.to_homogeneous(), or the part of one kind"
        )
    if isinstance(given, Batch):
        return _read(name, given, given.to_data_list), []
    if isinstance(given, Data):
        return given, []
    if all(callable(getattr(given, key, None)) for key in ("is_directed", "nodes", "edges", "adjacency")):
        return _of_networkx(given, name)
    indexed = all(hasattr(type(given), key) for key in ("__len__", "__getitem__"))
    if not indexed or isinstance(given, str | Mapping | Sequence | Tensor | np.ndarray):
        return None, []
    graphs = _read(name, given, lambda: [given[place] for place in range(len(given))])  # type: ignore[arg-type,index]
    for one in graphs:
        if isinstance(one, HeteroData):
            return brought(one, name)
    if not graphs or not all(isinstance(one, Data) for one in graphs):
        return None, []
    return _of_data_set(given, graphs, name)


def _read(name: str, given: object, read: Any) -> list[Any]:
    try:
        return list(read())
    except Exception as error:  # what somebody else's code raises
        why = (str(error).splitlines() or [""])[0][:160]
        raise BadInput(
            f"{name}, a {type(given).__name__}, cannot be read ({type(error).__name__}: {why}): give its "
            "graphs as a list of PyG Data; tables in CSV or parquet files are read by "
            "secure_fedgraph.graph.silos.reading.read_silo"
        ) from None


def _of_data_set(given: Any, graphs: list[Data], name: str) -> tuple[Data | list[Data], list[str]]:
    """The graph or graphs of a data set object, with the split and the task that OGB's have."""
    notes = []
    task = "number" if "regression" in str(getattr(given, "task_type", "")) else None
    if task is not None:
        graphs = [_with(one, task=task) for one in graphs]
    if hasattr(given, "get_edge_split"):
        notes.append("its split of links is not used")
    if not hasattr(given, "get_idx_split"):
        return (graphs[0] if len(graphs) == 1 else graphs), notes
    if len(graphs) > 1:
        return graphs, [*notes, "its split is not used, as partitions of sets of graphs draw their own"]
    parts = dict(_read(name, given, lambda: given.get_idx_split().items()))
    if not all(isinstance(parts.get(part), Tensor | np.ndarray) for part in PARTS.values()):
        raise BadInput(f"{name}: its split has parts {', '.join(map(str, parts))}: put them into masks")
    split = {key: torch.as_tensor(parts[part]) for key, part in PARTS.items()}
    return _with(graphs[0], **split), [*notes, "its own split became masks"]


def _with(graph: Data, **fields: Any) -> Data:
    return Data(**{**graph.to_dict(), **fields})


def _of_networkx(given: Any, name: str) -> tuple[Data, list[str]]:
    """A graph of NetworkX: ``x``, ``y`` and masks of its nodes, or all their numbers as columns of ``x``."""
    if not len(given):
        raise BadInput(f"{name} has no nodes: give at least one")
    try:
        found = from_networkx(given)
    except ValueError as error:
        raise BadInput(f"{name}: {error}: give each attribute to all nodes, and to all links") from None
    fields = {key: value for key, value in found.to_dict().items() if key in MEANT}
    odd = [key for key, value in fields.items() if not isinstance(value, Tensor)]
    if odd:
        raise BadInput(f"{name}: {odd[0]} of nodes is missing at some, or holds other things than numbers")
    notes = ["a graph of NetworkX became PyG's"]
    if isinstance(found.get("weight"), Tensor):
        fields["edge_weight"] = found.weight
        notes.append("weight became edge_weight")
    keys = sorted({str(key) for _, values in given.nodes(data=True) for key in values} - {*MEANT})
    numbers = [key for key in keys if isinstance(found.get(key), Tensor) and found[key].dim() == 1]
    if "x" not in fields and numbers:
        fields["x"] = torch.stack([found[key].float() for key in numbers], dim=1)
        fields["feature_names"] = numbers
        notes.append(f"x has the columns {', '.join(numbers)}")
        keys = [key for key in keys if key not in numbers]
    if keys:
        notes.append(f"{', '.join(keys)} of nodes {'is' if len(keys) == 1 else 'are'} not used")
    return Data(edge_index=found.edge_index, num_nodes=len(given), **fields), notes
