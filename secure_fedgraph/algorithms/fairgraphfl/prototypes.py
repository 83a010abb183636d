"""FairGraphFL's motif prototypes: an agent's own, those of all agents, and how they pull training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fairgraphfl import fairness, motifs
from secure_fedgraph.algorithms.fairgraphfl import state as kept
from secure_fedgraph.algorithms.fairgraphfl.channels import PROTOTYPE_SUMS, PROTOTYPES_OF_EACH
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.training.gin_classifier import Distance
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.seams import ClientContext, RoundApi

SCALE = 1024.0
"""Prototypes are sums over a graph's nodes and so in the hundreds: what is added up travels over this, so
that it fits the ring encoding's default limit."""


class NoPrototypes:
    """The ablation: embeddings are pulled nowhere."""

    def __init__(self, settings: FairGraphFLSettings) -> None:
        self.settings = settings

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What they send."""
        return ()

    def learn(self, round: RoundApi, state: State) -> State:
        """The server's half: asks the agents.

        Returns:
            What the state gains: ``PROTOTYPES`` ``[motifs, hidden]`` and ``KNOWN`` ``[motifs]``.
        """
        return {}

    def distance(self, client: ClientContext, given: Mapping[str, Any]) -> Distance | None:
        """The agent's half: the term that the prototypes which it was given add to its loss (Eq. 14)."""
        return None


class SummedPrototypes(NoPrototypes):
    """The agents' prototypes, added up by value before the server reads them: it is all that Eq. 12 needs."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The sums."""
        return (PROTOTYPE_SUMS,)

    def learn(self, round: RoundApi, state: State) -> State:
        """The sum of the agents' prototypes over the sum of their values, motif by motif (Eq. 12)."""
        total = round.reduce(PROTOTYPE_SUMS).total
        shape = (len(state[kept.VOCABULARY]), self.settings.hidden)
        rows = kept.numbers_in(total, "rows", shape, "the agents' sum") * SCALE
        return _means(rows, kept.numbers_in(total, "weight", shape[:1], "the agents' sum"))

    def distance(self, client: ClientContext, given: Mapping[str, Any]) -> Distance | None:
        """Of an agent's own motifs, those that it has listed."""
        s = self.settings
        if kept.PROTOTYPES not in given or not s.regularisation:
            return None
        held, at = motifs.incidence(client, s)
        return distance_to(client, given, held, at, int(client.memory[motifs.LENGTH]), s)


class PrototypesOfEach(SummedPrototypes):
    """The same means, of prototypes that the server reads agent by agent."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The prototypes."""
        return (PROTOTYPES_OF_EACH,)

    def learn(self, round: RoundApi, state: State) -> State:
        """Every agent's prototypes, weighted by its value (Eq. 12)."""
        motif_count, width = len(state[kept.VOCABULARY]), self.settings.hidden
        weighted, weight = torch.zeros(motif_count, width), torch.zeros(motif_count)
        uploads, values = round.gather(PROTOTYPES_OF_EACH), state[kept.VALUES][-1].clamp(min=0)
        for name, present, value in zip(round.cohort, state[kept.PRESENT], values, strict=True):
            own = kept.numbers_in(uploads[name], "rows", (int(present.sum()), width), name)
            weighted[present] += float(value) * (own * SCALE)
            weight[present] += float(value)
        return _means(weighted, weight)


def prototypes_of(settings: FairGraphFLSettings) -> NoPrototypes:
    """The way that settings ask for."""
    if settings.prototypes == "none":
        return NoPrototypes(settings)
    return PrototypesOfEach(settings) if settings.prototypes == "each" else SummedPrototypes(settings)


def _means(weighted: Tensor, weight: Tensor) -> State:
    """Weighted sums over their weights; a motif of no weight has no prototype."""
    known = weight > fairness.SMALL
    means = torch.where(known[:, None], weighted / weight.clamp(min=fairness.SMALL)[:, None], 0.0)
    return {kept.PROTOTYPES: means.float(), kept.KNOWN: known.to(torch.uint8)}


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


def distance_to(
    client: ClientContext,
    given: Mapping[str, Any],
    incidence: Tensor,
    at: Tensor,
    motif_count: int,
    settings: FairGraphFLSettings,
) -> Distance:
    """The regulariser's term of the loss (Eq. 14), towards the prototypes that the server sent.

    Distances are as printed (``absolute``), or over the prototype's own size where that is above one a
    component (``relative``): embeddings are sums over nodes, and grow with a graph's links.

    Args:
        incidence: ``[training graphs, motifs]`` of zeros and ones, of the agent's own motifs.
        at: where each of these stands in the server's vocabulary.
        motif_count: motifs in that vocabulary: public, so that a refusal says nothing of the agent's own.

    Raises:
        HostileMessage: for prototypes of another vocabulary.
    """
    prototypes, known = given[kept.PROTOTYPES], given[kept.KNOWN].bool()
    if len(prototypes) != motif_count or len(known) != motif_count:
        raise HostileMessage(f"{client.name} was given prototypes that are not of {motif_count} motifs")
    held, targets = incidence[:, known[at]], prototypes[at[known[at]]].float()
    size = targets.square().mean(1).clamp(min=1)
    weights = 1 / size if settings.distance == "relative" else torch.ones_like(size)
    return lambda embedded, rows: (
        settings.regularisation * prototype_distance(embedded, held[rows], targets, weights)
    )


def prototype_distance(embedded: Tensor, held: Tensor, prototypes: Tensor, weights: Tensor) -> Tensor:
    """Mean over motifs of the squared distance of a batch's prototypes, averaged over their width (Eq. 14).

    Args:
        embedded: ``[b, width]`` of the batch's graphs.
        held: ``[b, motifs]`` of zeros and ones: which graph holds which motif.
        prototypes: ``[motifs, width]``.
        weights: ``[motifs]`` of each one's squared distance.
    """
    graphs = held.sum(0)
    in_batch = graphs > 0
    if not bool(in_batch.any()):
        return embedded.new_zeros(())
    own = held[:, in_batch].T @ embedded / graphs[in_batch, None]
    return (weights[in_batch] * (own - prototypes[in_batch]).square().mean(1)).mean()
