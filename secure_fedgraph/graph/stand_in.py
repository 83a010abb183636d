"""Stand-ins: graphs that have an owner's public facts and nothing of its data."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.graph.answers import stand_in_answers
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.seeds import sub_seed


def stand_in(graph: Data, schema: Schema) -> Data:
    """A graph of nodes, or a set of graphs, with the same public facts as an owner's, and other data.

    Public are the fields that it has, how many nodes and graphs there are, which columns, and the type of the
    labels. Made up are features, labels, links and what they carry, and the split.

    Args:
        graph: the owner's.
        schema: public facts about the data.

    Returns:
        A new graph. Fields that are none of this package's are left out.

    >>> own = Data(x=torch.rand(4, 2), y=torch.tensor([1, 1, 1, 1]), edge_index=torch.tensor([[0], [3]]))
    >>> stand_in(own, Schema(2, 3)).y.tolist()
    [0, 1, 2, 0]
    """
    nodes = int(graph.num_nodes or 0)
    graphs = len(graph.y) if "graph" in graph else 0
    of = torch.arange(nodes) * graphs // max(nodes, 1)  # as many nodes each as they have on average
    items = torch.arange(graphs or nodes)
    here = torch.arange(max(nodes - 1, 0))
    here = here[of[here] == of[here + 1]]
    links = torch.stack([torch.cat([here, here + 1]), torch.cat([here + 1, here])])
    made = {
        "x": _columns(nodes, graph.x.shape[1], schema.atoms),
        "edge_index": links,
        "edge_weight": torch.ones(links.shape[1]),
        "y": stand_in_answers(items, schema).to(graph.y.dtype),
        "graph": of,
        **dict(zip(MASKS, (items % 5 < 3, items % 5 == 3, items % 5 > 3), strict=True)),
    }
    if "edge_attr" in graph:
        whole = graph.edge_attr.dim() == 1
        columns = _columns(links.shape[1], 1 if whole else graph.edge_attr.shape[1], schema.bonds)
        made["edge_attr"] = columns.squeeze(1) if whole else columns
    return Data(**{key: made[key] for key in graph.keys() if key in made}, num_nodes=nodes)  # noqa: SIM118


def _columns(rows: int, width: int, sizes: tuple[int, ...]) -> Tensor:
    """Numbers above 0 and below 1; of categories, each in turn."""
    if sizes:
        return (torch.arange(rows)[:, None] % torch.tensor(sizes)).float()
    drawn = torch.Generator().manual_seed(sub_seed(0, "stand-in"))
    return torch.rand(rows, width, generator=drawn).clamp(min=0.01)
