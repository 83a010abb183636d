"""Giving nodes the neighbours that were generated for them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput


def attach(edge_index: Tensor, nodes: int, anchor: Tensor) -> Tensor:
    """The edges with new node ``nodes + i`` linked to ``anchor[i]``, in both directions.

    Without the direction from the new node to the old one, no old node would ever see a generated feature.

    >>> attach(torch.tensor([[0], [1]]), 2, torch.tensor([1])).tolist()
    [[0, 2, 1], [1, 1, 2]]
    """
    new = nodes + torch.arange(len(anchor))
    return torch.cat([edge_index, torch.stack([new, anchor]), torch.stack([anchor, new])], dim=1)


def mend(graph: Data, counts: Tensor, generated: Tensor) -> Data:
    """A graph whose node ``v`` has ``counts[v]`` more neighbours.

    **Guarantees:** original nodes keep their numbers, links, labels and masks; new nodes come after them,
    linked in both directions, unlabelled: in no mask, ``y = 0`` and ``node_id = -1`` as placeholders. The
    given graph is not changed.

    Args:
        graph: an owner's original graph, ``n`` nodes; not the impaired one, or hidden nodes get nothing.
        counts: integers ``[n]``.
        generated: ``[n, p, d]``, ``p`` at least the highest count; the first ``counts[v]`` of ``v`` are used.

    Raises:
        BadInput: for features that are not finite.

    References:
        Zhang et al., NeurIPS 2021, section 4.1.
    """
    nodes, candidates = generated.shape[:2]
    anchor, slot = (torch.arange(candidates) < counts.unsqueeze(1)).nonzero(as_tuple=True)
    rows = generated[anchor, slot]
    if not torch.isfinite(rows).all():
        raise BadInput("generated features are not finite; train the generator with a smaller rate.")
    completed = Data(x=torch.cat([graph.x, rows]), edge_index=attach(graph.edge_index, nodes, anchor))
    for key, value in graph:
        if key not in completed and graph.is_node_attr(key):
            blank = value.new_full((len(anchor), *value.shape[1:]), -1 if key == "node_id" else 0)
            completed[key] = torch.cat([value, blank])
    return completed
