"""Giving nodes the neighbours that were generated for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.links import undirected_links

# Hiding a share of an owner's nodes, so that a generator can learn what missing neighbours look like.


@dataclass(frozen=True)
class Impaired:
    """A graph some of whose nodes are hidden, and the truth about them.

    Args:
        graph: what remains; features, labels, masks and links are those of ``kept``, in that order.
        kept: ``[n]`` numbers of the remaining nodes in the owner's graph, ascending.
        hidden: ``[m]`` numbers of the hidden nodes, ascending.
        hidden_x: their features ``[m, d]``.
        counts: ``[n]`` hidden neighbours of each remaining node; a link counts once.
        neighbours: ``[n, h]`` rows of ``hidden_x``, padded with -1; ``h`` is the highest count, at least 1.
    """

    graph: Data
    kept: Tensor
    hidden: Tensor
    hidden_x: Tensor = field(repr=False)
    counts: Tensor = field(repr=False)
    neighbours: Tensor = field(repr=False)


def impair(graph: Data, share: float, seed: int) -> Impaired:
    """Hides ``round(share * nodes)`` random nodes with all their links.

    **Guarantees:** whatever belongs to a node (``x``, ``y``, masks) stays with it; the owner's graph is not
    changed; the same seed hides the same nodes.

    Args:
        graph: the owner's, with ``x [N, d]`` and ``edge_index``; links count in both directions.
        share: between 0 and 1; the paper takes 0.034 to 0.278.
        seed: of the choice.

    Raises:
        BadInput: for a share that hides nothing or leaves nothing.

    References:
        Zhang et al., NeurIPS 2021, section 4.1.
    """
    nodes = int(graph.num_nodes or 0)
    number = check_share(nodes, share)
    shuffled = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
    hidden, kept = shuffled[:number].sort().values, shuffled[number:].sort().values
    counts, neighbours = _hidden_neighbours(graph.edge_index, nodes, kept, hidden)
    return Impaired(graph.subgraph(kept), kept, hidden, graph.x[hidden], counts, neighbours)


def check_share(nodes: int, share: float) -> int:
    """How many of ``nodes`` nodes a share hides.

    Raises:
        BadInput: for a share that is not between 0 and 1, hides no node or leaves none.
    """
    if not (math.isfinite(share) and 0 < share < 1):
        raise BadInput(f"hidden share is {share}: give a number between 0 and 1, such as 0.15.")
    number = round(share * nodes)
    if not 0 < number < nodes:
        what = "hides none" if number == 0 else "leaves none"
        raise BadInput(
            f"hidden share {share} of {nodes} nodes {what}: give another share, or use fewer owners."
        )
    return number


def _hidden_neighbours(edge_index: Tensor, nodes: int, kept: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Per remaining node how many hidden neighbours it has, and which."""
    is_hidden = torch.zeros(nodes, dtype=torch.bool)
    is_hidden[hidden] = True
    place = torch.empty(nodes, dtype=torch.long)  # every node is in one of the two lists
    place[kept], place[hidden] = torch.arange(len(kept)), torch.arange(len(hidden))
    links = undirected_links(edge_index)
    both = torch.cat([links, links.flip(0)], dim=1)
    outside, inside = both[:, ~is_hidden[both[0]] & is_hidden[both[1]]]
    outside, inside = place[outside], place[inside]
    order = torch.argsort(outside * len(hidden) + inside)
    outside, inside = outside[order], inside[order]
    counts = torch.bincount(outside, minlength=len(kept))
    first = counts.cumsum(0) - counts
    neighbours = torch.full((len(kept), max(int(counts.max()), 1)), -1)
    neighbours[outside, torch.arange(len(outside)) - first[outside]] = inside
    return counts, neighbours


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
