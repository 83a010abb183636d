"""Many small graphs as one disjoint union: what the owner of a set of graphs holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data


def pack(graphs: Sequence[Data]) -> Data:
    """The disjoint union of some graphs.

    Returns:
        ``Data`` with ``x [N, F]``, ``edge_index``, ``edge_attr`` where the graphs have it, ``graph [N]``
        (which graph a node is of) and ``y [graphs]``, or ``[graphs, labels]``.

    >>> one = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1]))
    >>> pack([one, one]).edge_index.tolist(), pack([one, one]).graph.tolist()
    ([[0, 1, 2, 3], [1, 0, 3, 2]], [0, 0, 1, 1])
    """
    union = Batch.from_data_list(list(graphs))
    several = union.y.dim() == 2 and union.y.shape[1] > 1
    y = union.y if several else union.y.flatten()
    packed = Data(x=union.x, edge_index=union.edge_index, y=y, graph=union.batch)
    if union.get("edge_attr") is not None:
        packed.edge_attr = union.edge_attr
    return packed


def select_graphs(packed: Data, chosen: Tensor, of_nodes: Mapping[str, Tensor] | None = None) -> Data:
    """Some graphs of a union, in the order in which they are named.

    Args:
        packed: as :func:`pack` gives it; masks over graphs are dropped.
        chosen: ``[g]`` graph numbers, each once.
        of_nodes: name -> ``[N, ...]``: further values of nodes, which the selection has by these names.
    """
    device = packed.graph.device
    place = torch.full((len(packed.y),), -1, dtype=torch.long, device=device)
    place[chosen] = torch.arange(len(chosen), device=device)
    of_node = place[packed.graph]
    nodes = (of_node >= 0).nonzero().flatten()
    nodes = nodes[torch.sort(of_node[nodes], stable=True).indices]
    node_place = torch.full((len(packed.graph),), -1, dtype=torch.long, device=device)
    node_place[nodes] = torch.arange(len(nodes), device=device)
    links = (node_place[packed.edge_index[0]] >= 0).nonzero().flatten()
    selected = Data(
        x=packed.x[nodes],
        edge_index=node_place[packed.edge_index[:, links]],
        y=packed.y[chosen],
        graph=of_node[nodes],
    )
    if packed.get("edge_attr") is not None:
        selected.edge_attr = packed.edge_attr[links]
    for name, value in (of_nodes or {}).items():
        selected[name] = value[nodes]
    return selected


def without_answers(packed: Data) -> Data:
    """The same graphs without their classes: what a referee may show."""
    question = Data(x=packed.x, edge_index=packed.edge_index, graph=packed.graph)
    if packed.get("edge_attr") is not None:
        question.edge_attr = packed.edge_attr
    return question
