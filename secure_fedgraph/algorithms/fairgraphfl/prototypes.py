"""FairGraphFL's motif prototypes: an agent's own, those of all agents, and how they pull training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fairgraphfl import fairness, motifs
from secure_fedgraph.algorithms.fairgraphfl.channels import PROTOTYPE_SUMS, PROTOTYPES_OF_EACH
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.fairgraphfl.state import KNOWN, PRESENT, PROTOTYPES, VALUES, VOCABULARY
from secure_fedgraph.algorithms.training.gin_classifier import Distance
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.seams import ClientContext, RoundApi

SCALE = 1024.0
"""Prototypes are sums over a graph's nodes and so in the hundreds: what is added up travels over this, so
that it fits the ring encoding's default limit."""


class Prototypes(Protocol):
    """One way in which prototypes are made of agents' embeddings, and pull their training."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What it sends."""

    def learn(self, round: RoundApi, state: State) -> State:
        """The server's half: asks the agents.

        Returns:
            What the state gains: ``PROTOTYPES`` ``[motifs, hidden]`` and ``KNOWN`` ``[motifs]``.
        """

    def distance(self, client: ClientContext, given: Mapping[str, Any]) -> Distance | None:
        """The agent's half: the term that the prototypes which it was given add to its loss (Eq. 14)."""


class NoPrototypes:
    """The ablation: embeddings are pulled nowhere."""

    channels: tuple[Channel, ...] = ()

    def learn(self, round: RoundApi, state: State) -> State:
        """Asks nothing."""
        return {}

    def distance(self, client: ClientContext, given: Mapping[str, Any]) -> None:
        """No term."""
        return None


class SummedPrototypes:
    """The agents' prototypes, added up by value before the server reads them: it is all that Eq. 12 needs."""

    channels: tuple[Channel, ...] = (PROTOTYPE_SUMS,)

    def __init__(self, settings: FairGraphFLSettings) -> None:
        self.settings = settings

    def learn(self, round: RoundApi, state: State) -> State:
        """The sum of the agents' prototypes over the sum of their values, motif by motif (Eq. 12)."""
        total = round.reduce(PROTOTYPE_SUMS).total
        shape = (len(state[VOCABULARY]), self.settings.hidden)
        return _means(*_check_rows(total, *shape, "the agents' sum"))

    def distance(self, client: ClientContext, given: Mapping[str, Any]) -> Distance | None:
        """Of an agent's own motifs, those that it has listed."""
        s = self.settings
        if PROTOTYPES not in given or not s.regularisation:
            return None
        held, at = motifs.incidence(client, s)
        target = pull(client, given, held, at, (int(client.memory[motifs.LENGTH]), s.hidden), s.distance)
        return distance_to(target, s)


class PrototypesOfEach(SummedPrototypes):
    """The same means, of prototypes that the server reads agent by agent."""

    channels: tuple[Channel, ...] = (PROTOTYPES_OF_EACH,)

    def learn(self, round: RoundApi, state: State) -> State:
        """Every agent's prototypes, weighted by its value (Eq. 12)."""
        motif_count, width = len(state[VOCABULARY]), self.settings.hidden
        weighted, weight = torch.zeros(motif_count, width), torch.zeros(motif_count)
        uploads, values = round.gather(PROTOTYPES_OF_EACH), state[VALUES][-1].clamp(min=0)
        for name, present, value in zip(round.cohort, state[PRESENT], values, strict=True):
            own, _ = _check_rows(uploads[name], int(present.sum()), width, name)
            weighted[present] += float(value) * own
            weight[present] += float(value)
        return _means(weighted, weight)


def prototypes_of(settings: FairGraphFLSettings) -> Prototypes:
    """The way that settings ask for."""
    if settings.prototypes == "none":
        return NoPrototypes()
    return PrototypesOfEach(settings) if settings.prototypes == "each" else SummedPrototypes(settings)


def _means(weighted: Tensor, weight: Tensor) -> State:
    """Weighted sums over their weights; a motif of no weight has no prototype."""
    known = weight > fairness.SMALL
    means = torch.where(known[:, None], weighted / weight.clamp(min=fairness.SMALL)[:, None], 0.0)
    return {PROTOTYPES: means.float(), KNOWN: known.to(torch.uint8)}


def _check_rows(values: Mapping[str, Tensor], rows: int, width: int, name: str) -> tuple[Tensor, Tensor]:
    """Prototypes and their weights as they were before they were scaled to travel.

    Raises:
        HostileMessage: for anything else.
    """
    prototypes, weight = values.get("rows"), values.get("weight", torch.ones(rows))
    fits = (
        isinstance(prototypes, Tensor)
        and prototypes.shape == (rows, width)
        and weight.shape == (rows,)
        and bool(torch.isfinite(prototypes).all() and torch.isfinite(weight).all())
    )
    if not fits:
        raise HostileMessage(f"the prototypes of {name} are not {rows} finite rows of {width} numbers")
    assert isinstance(prototypes, Tensor)
    return prototypes * SCALE, weight


# --- in an agent


def own_prototypes(client: ClientContext, model: Gin, settings: FairGraphFLSettings) -> tuple[Tensor, Tensor]:
    """``[listed, width]`` the mean embedding of the training graphs that hold each motif (Eq. 11).

    Returns:
        These, and ``[listed]`` where each motif stands in the vocabulary.
    """
    held, at = motifs.incidence(client, settings)
    model.eval()
    with torch.no_grad():
        embedded = model.embed(select_graphs(client.graph, client.graph.train_mask.nonzero().flatten()))
    return held.T @ embedded / held.sum(0)[:, None].clamp(min=1), at


def weighted_sum(client: ClientContext, model: Gin, settings: FairGraphFLSettings) -> dict[str, Tensor]:
    """An agent's prototypes times its value, and its value, over the whole vocabulary: zero where it has
    none."""
    own, at = own_prototypes(client, model, settings)
    value = max(0.0, client.memory.get("value", 1.0))  # before the first reward all weigh the same
    length = int(client.memory[motifs.LENGTH])
    rows, weight = torch.zeros(length, settings.hidden), torch.zeros(length)
    rows[at], weight[at] = value * own / SCALE, value
    return {"rows": rows, "weight": weight}


def in_order(client: ClientContext, model: Gin, settings: FairGraphFLSettings) -> dict[str, Tensor]:
    """An agent's prototypes, in the order of the vocabulary."""
    own, at = own_prototypes(client, model, settings)
    return {"rows": own[at.argsort()] / SCALE}


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
    """The prototypes that the server sent, for the agent's own motifs.

    Args:
        at: where each column of the incidence stands in the server's vocabulary.
        shape: motifs in that vocabulary, and the width of a prototype. Both are public, so that a refusal
            says nothing of the agent's own motifs.
        distance: ``relative`` or ``absolute``.

    Raises:
        HostileMessage: for prototypes that no honest server sends.
    """
    prototypes, known = given.get(PROTOTYPES), given.get(KNOWN)
    fits = (
        isinstance(prototypes, Tensor)
        and isinstance(known, Tensor)
        and prototypes.shape == shape
        and known.shape == shape[:1]
        and bool(torch.isfinite(prototypes).all())
    )
    if not fits:
        raise HostileMessage(
            f"{client.name} was given prototypes that are not {shape[0]} finite rows of {shape[1]} numbers"
        )
    assert isinstance(known, Tensor)
    assert isinstance(prototypes, Tensor)
    has_prototype = known.bool()[at]
    return Pull.towards(incidence[:, has_prototype], prototypes[at[has_prototype]].float(), distance)


def distance_to(target: Pull, settings: FairGraphFLSettings) -> Distance:
    """The regulariser's term of the loss (Eq. 14), by the settings' reading of it."""
    distance = graph_distance if settings.regulariser == "graph" else prototype_distance
    return lambda embedded, rows: settings.regularisation * distance(embedded, target, rows)


def prototype_distance(embedded: Tensor, target: Pull, rows: Tensor) -> Tensor:
    """Mean over motifs of the squared distance of a batch's prototypes, averaged over their width (Eq. 14).

    Args:
        embedded: ``[b, width]`` of the batch's graphs.
        rows: ``[b]`` their rows in the incidence.
    """
    held = target.incidence[rows]
    graphs = held.sum(0)
    in_batch = graphs > 0
    if not bool(in_batch.any()):
        return embedded.new_zeros(())
    own = held[:, in_batch].T @ embedded / graphs[in_batch, None]
    return (target.weights[in_batch] * (own - target.prototypes[in_batch]).square().mean(1)).mean()


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
