"""Stand-ins: graphs that have an owner's public facts and nothing of its data, for tests of what leaves."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.graph.answers import stand_in_answers
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.own.pairs import ENDS, MESSAGES, OWN, PAIRS, RANKS, WRONG
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.graph.seeds import sub_seed


def stand_in(graph: Data, schema: Schema, variant: int = 0) -> Data:
    """A graph with the same public facts as an owner's, and other data.

    Public are the fields that it has, how many nodes, graphs and users there are, which columns, the type of
    the labels, and the scale of ratings. Made up are features, labels, links and what they carry, ratings,
    ids and the split.

    Args:
        graph: the owner's.
        schema: public facts about the data.
        variant: 0 has all classes and no feature that is zero. Another variant has another split, other
            features, fewer links and, of several classes, one less.

    Returns:
        A new graph. Fields that are none of this package's are left out.

    >>> from torch_geometric.data import Data
    >>> own = Data(x=torch.rand(4, 2), y=torch.tensor([1, 1, 1, 1]), edge_index=torch.tensor([[0], [3]]))
    >>> stand_in(own, Schema(2, 3)).y.tolist()
    [0, 1, 2, 0]
    """
    made = _ratings(graph, variant) if "rating" in graph else _nodes(graph, schema, variant)
    return Data(**{key: made[key] for key in (*graph.keys(), "num_nodes") if key in made})


def _nodes(graph: Data, schema: Schema, variant: int) -> dict[str, Tensor | int]:
    """Of one graph of nodes, or of a set of graphs: as many nodes each as they have on average."""
    nodes = int(graph.num_nodes or 0)
    graphs = len(graph.y) if "graph" in graph else 0
    of = torch.arange(nodes) * graphs // max(nodes, 1)
    answers = len(graph.edge_label) if "edge_label" in graph else 0
    items = graphs or answers or nodes
    here = torch.arange(max(nodes - 1, 0))
    here = here[of[here] == of[here + 1]][:: 1 + variant % 2]
    links = torch.stack([torch.cat([here, here + 1]), torch.cat([here + 1, here])])
    fields: dict[str, Tensor | int] = {
        "edge_index": links,
        "edge_weight": torch.ones(links.shape[1]),
        "y": _labels(graph, items, schema, variant),
        "graph": of,
        "node_id": torch.arange(nodes),
        "cross_links": torch.zeros(2, 0, dtype=torch.long),
        "home": torch.ones(nodes, dtype=torch.bool),
        "graph_id": torch.arange(items),
        "num_nodes": nodes,
        **_split(items, variant),
    }
    if "x" in graph:
        fields["x"] = _columns(nodes, graph.x.shape[1], schema.atoms, variant)
    if answers:
        each = torch.arange(answers)
        fields["edge_label_index"] = torch.stack([each % nodes, (each + 1 + each // nodes) % nodes])
        fields["edge_label"], fields["link_id"] = fields["y"], each
    if "edge_attr" in graph:
        whole = graph.edge_attr.dim() == 1
        columns = _columns(links.shape[1], 1 if whole else graph.edge_attr.shape[1], schema.bonds, variant)
        fields["edge_attr"] = columns.squeeze(1) if whole else columns
    return fields | (_pairs(graph, schema, variant) if PAIRS in graph else {})


def _pairs(graph: Data, schema: Schema, variant: int) -> dict[str, Tensor | int]:
    """Of a graph whose rows are links: what it has besides, between as many nodes."""
    rows, nodes = torch.arange(len(graph.y)), len(graph[ENDS])
    each = torch.arange(nodes)
    tested = int((~_split(len(rows), variant)["train_mask"]).sum())
    ring = torch.stack([each, (each + 1) % nodes])
    return {
        "edge_index": torch.zeros(2, 0, dtype=torch.long),
        PAIRS: ring[:, rows % nodes],
        OWN: _columns(len(rows), schema.own, (), variant),
        ENDS: _columns(nodes, schema.ends, (), variant),
        MESSAGES: ring,
        WRONG: ring[:, torch.arange(tested * RANKS) % nodes].reshape(2, tested, RANKS),
    }


def _ratings(graph: Data, variant: int) -> dict[str, Tensor | int]:
    users = int(graph.users)
    products = int(graph.num_nodes or 0) - users
    each = torch.arange(max(users, products))
    low, high = (float(end) for end in graph.scale)
    return {
        "edge_index": torch.stack([each % users, users + each % max(products, 1)]),
        "rating": low + (high - low) * ((each + variant) % 5) / 4,
        "user_id": torch.arange(users),
        "product_id": torch.arange(products),
        "users": users,
        "scale": graph.scale,
        "num_nodes": users + products,
        **_split(len(each), variant),
    }


def _labels(graph: Data, items: int, schema: Schema, variant: int) -> Tensor:
    present = max(schema.classes - variant % 2, 1)
    numbers = torch.arange(items)
    if schema.task in (Task.CLASSES, Task.LINK_CLASSES):
        numbers = numbers % present
    labels = stand_in_answers(numbers, schema)
    return labels.to(graph.y.dtype) if "y" in graph else labels


def _columns(rows: int, width: int, sizes: tuple[int, ...], variant: int) -> Tensor:
    """Numbers above 0 and below 1, in other variants mostly zeros; of categories, each in turn."""
    if sizes:
        return (torch.arange(rows)[:, None] % torch.tensor(sizes) * (1 - variant % 2)).float()
    drawn = torch.Generator().manual_seed(sub_seed(variant, "stand-in"))
    values = torch.rand(rows, width, generator=drawn).clamp(min=0.01)
    return values * (values > 0.7) if variant % 2 else values


def _split(items: int, variant: int) -> dict[str, Tensor]:
    place, trained = torch.arange(items) % 5, 3 - variant % 2
    parts = (place < trained, place == trained, place > trained)
    return dict(zip(MASKS, parts, strict=True))
