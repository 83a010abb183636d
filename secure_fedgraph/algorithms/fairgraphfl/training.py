"""What FairGraphFL adds to an agent's training: motif prototypes, and the pull towards everybody's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from secure_fedgraph.errors import HostileMessage
from secure_fedgraph.graph.sample.packing import some
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.seams import ClientContext

PROTOTYPES, KNOWN = "prototypes", "known"


@dataclass(frozen=True)
class Pull:
    """What the regulariser pulls towards.

    Args:
        incidence: ``[training graphs, motifs]`` of zeros and ones; only motifs with a prototype.
        prototypes: ``[motifs, width]``.
        weights: ``[motifs]`` of each one's squared distance.
    """

    incidence: Tensor
    prototypes: Tensor
    weights: Tensor

    @classmethod
    def towards(cls, incidence: Tensor, prototypes: Tensor, distance: str) -> Pull:
        """Distances as printed (``absolute``), or over the prototype's own size where that is above one a
        component (``relative``): embeddings are sums over nodes, and grow with a graph's links."""
        size = prototypes.square().mean(1).clamp(min=1)
        return cls(incidence, prototypes, 1 / size if distance == "relative" else torch.ones_like(size))


def pull(
    client: ClientContext,
    given: Mapping[str, Any],
    incidence: Tensor,
    at: Tensor,
    shape: tuple[int, int],
    distance: str,
) -> Pull:
    """The prototypes that the server told, for the agent's own motifs.

    Args:
        at: where each column of the incidence stands in the server's vocabulary.
        shape: motifs in that vocabulary, and the width of a prototype. Both are public, so that a refusal
            says nothing of the agent's own motifs.
        distance: ``relative`` or ``absolute``.

    Raises:
        HostileMessage: for prototypes that no honest server tells.
    """
    prototypes, known = given.get(PROTOTYPES), given.get(KNOWN)
    right = (
        isinstance(prototypes, Tensor)
        and isinstance(known, Tensor)
        and prototypes.shape == shape
        and known.shape == shape[:1]
        and bool(torch.isfinite(prototypes).all())
    )
    if not right:
        raise HostileMessage(
            f"{client.name} was told prototypes that are not {shape[0]} finite rows of {shape[1]} numbers"
        )
    assert isinstance(known, Tensor)
    assert isinstance(prototypes, Tensor)
    there = known.bool()[at]
    return Pull.towards(incidence[:, there], prototypes[at[there]].float(), distance)


def prototype_distance(embedded: Tensor, target: Pull, rows: Tensor) -> Tensor:
    """Mean over motifs of the squared distance of a batch's prototypes, averaged over their width (Eq. 14).

    Args:
        embedded: ``[b, width]`` of the batch's graphs.
        rows: ``[b]`` their rows in the incidence.
    """
    held = target.incidence[rows]
    graphs = held.sum(0)
    there = graphs > 0
    if not bool(there.any()):
        return embedded.new_zeros(())
    own = held[:, there].T @ embedded / graphs[there, None]
    return (target.weights[there] * (own - target.prototypes[there]).square().mean(1)).mean()


def graph_distance(embedded: Tensor, target: Pull, rows: Tensor) -> Tensor:
    """Mean over graphs of ``1 / |M_G| sum_m ||e(G) - P_m||^2``, averaged over the width.

    A graph's term depends on no other graph, so that a step has one gradient a graph.
    """
    held = target.incidence[rows]
    share = held / held.sum(1, keepdim=True).clamp(min=1) * target.weights
    lengths = target.prototypes.square().sum(1)
    apart = (
        embedded.square().sum(1) * share.sum(1)
        - 2 * (embedded * (share @ target.prototypes)).sum(1)
        + share @ lengths
    )
    return apart.mean() / embedded.shape[1]


def shortened(embedded: Tensor, norm: float) -> Tensor:
    """Rows of at most this L2 norm."""
    scaled: Tensor = embedded * (norm / embedded.norm(dim=1, keepdim=True).clamp(min=norm))
    return scaled


def own_prototypes(client: ClientContext, model: Gin, incidence: Tensor) -> Tensor:
    """``[motifs, width]``: the mean embedding of the training graphs that hold each motif (Eq. 11)."""
    model.eval()
    with torch.no_grad():
        embedded = model.embed(some(client.graph, client.graph.train_mask.nonzero().flatten()))
    return incidence.T @ embedded / incidence.sum(0)[:, None].clamp(min=1)
