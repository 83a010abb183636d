"""What owners of one graph know of their links to nodes of other owners: whose ids, and no more."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_geometric.data import Data

from secure_fedgraph.graph.sample.links import distinct_pairs, undirected_links


def note_cross_links(graph: Data, owners: Sequence[Data]) -> None:
    """Adds to every owner's part, in place, the ids at the other end of its links to others' nodes.

    An induced part has lost these links, and nobody trains on them. Yet the owner of a node knows its links,
    as a bank knows the accounts at other banks that its customers pay. An owner gets:

    - ``cross_links [2, C]``: its own node, numbered as in its part, and the id (``node_id``) of a neighbour
      that some other owner holds and it does not; ascending;
    - ``home [n]``: whether this owner counts the node in sums of all owners: the first that trains on it
      does, and where nobody does the first that holds it.

    Links to nodes that nobody holds, such as a test graph apart, are in no part.

    Args:
        graph: the whole graph.
        owners: their parts, with ``node_id``.

    >>> path = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> left, right = (Data(node_id=torch.tensor(ids), num_nodes=2) for ids in ([0, 1], [2, 3]))
    >>> note_cross_links(path, [left, right])
    >>> left.cross_links.tolist(), right.cross_links.tolist()
    ([[1], [2]], [[0], [1]])
    """
    nodes = int(graph.num_nodes or 0)
    home = torch.full((nodes,), -1)
    for training in (False, True):
        for number, own in reversed(list(enumerate(owners))):
            # where links are the items, masks are of these
            mask = own.get("train_mask") if training and own.get("link_id") is None else None
            home[own.node_id if mask is None else own.node_id[mask]] = number
    links = undirected_links(graph.edge_index)
    held = home >= 0
    for number, own in enumerate(owners):
        place = torch.full((nodes,), -1)
        place[own.node_id] = torch.arange(len(own.node_id))
        mine = place >= 0
        theirs = held & ~mine
        both_ways = (links, links.flip(0))
        crossing = torch.cat([way[:, mine[way[0]] & theirs[way[1]]] for way in both_ways], dim=1)
        own.cross_links = distinct_pairs(torch.stack([place[crossing[0]], crossing[1]]))
        own.home = home[own.node_id] == number
