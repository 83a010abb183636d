"""FairGraphFL with differential privacy for a graph: its motif lists and prototypes are bounded sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Settings, State
from secure_fedgraph.algorithms.fairgraphfl import fairness, motifs
from secure_fedgraph.algorithms.fairgraphfl import state as kept
from secure_fedgraph.algorithms.fairgraphfl.algorithm import FairGraphFL
from secure_fedgraph.algorithms.fairgraphfl.channels import (
    FINGERPRINTS,
    MOTIFS,
    OF_DIVERSITY,
    PROTOTYPE_SUMS,
    PROTOTYPES_OF_EACH,
    SHARE,
    SHARED_VOCABULARY,
    STRUCTURE,
)
from secure_fedgraph.algorithms.fairgraphfl.motif_lists import NoLists
from secure_fedgraph.algorithms.fairgraphfl.prototypes import NoPrototypes, distance_to
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLBoundedSettings
from secure_fedgraph.algorithms.training.gin_classifier import Distance
from secure_fedgraph.core.channel import Channel, Reveal, UnitContribution
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Expected, Whole
from secure_fedgraph.core.upload import ContributionRows
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.models.parameters import load
from secure_fedgraph.seams import ClientContext, RoundApi

_RELEASED = "released once"
"""The name of an entry of a memory that never goes back."""


def unit_contribution(settings: FairGraphFLBoundedSettings) -> UnitContribution:
    """What one graph touches of the counts, and of the sums."""
    return UnitContribution(settings.motifs_per_graph, SHARE)


# --- in an agent


def counts(client: ClientContext, settings: FairGraphFLBoundedSettings) -> ContributionRows:
    """Every training graph counts for one in each of its motifs."""
    _once(client, "counts")
    places = motifs.holds(client, settings)
    return ContributionRows({"count": torch.full((len(places), 1), SHARE)}, places)


def sums(client: ClientContext, model: Gin, settings: FairGraphFLBoundedSettings) -> ContributionRows:
    """Every training graph's embedding, in shares of the clip, for each of its motifs."""
    _once(client, "sums")
    rows = client.graph.train_mask.nonzero().flatten()
    model.eval()
    with torch.no_grad():
        # one by one: in a batch, the last bits of a product may depend on who else is in it
        embedded = [model.embed(select_graphs(client.graph, row)) for row in rows.split(1)]
    values = torch.cat([torch.zeros(0, settings.hidden), *embedded])
    return ContributionRows({"rows": values * (SHARE / settings.clip)}, motifs.holds(client, settings))


def _once(client: ClientContext, what: str) -> None:
    """What is frozen is released once and used again at no cost; a second release would cost as the first.

    Raises:
        HostileMessage: for a second ask.
    """
    released = client.memory.get(_RELEASED, {})
    if what in released:
        raise HostileMessage(
            f"{client.name} was asked for its {what} of motifs again: they are released once"
        )
    client.memory[_RELEASED] = {**released, what: 1}


def clipped(embedded: Tensor, norm: float) -> Tensor:
    """Rows of at most this L2 norm."""
    scaled: Tensor = embedded * (norm / embedded.norm(dim=1, keepdim=True).clamp(min=norm))
    return scaled


# --- at the server


def count_of(total: Mapping[str, Tensor], length: int) -> Tensor:
    """``[vocabulary]`` in how many graphs each motif is, as far as noise lets through.

    Raises:
        HostileMessage: for a total that is none.
    """
    shares = kept.numbers_in(total, "count", (length, 1), "the agents' counts")
    return shares.flatten().double() / SHARE


def counts_of(
    uploads: Mapping[str, Mapping[str, Tensor]], length: int, settings: FairGraphFLBoundedSettings
) -> tuple[Tensor, Tensor]:
    """``[vocabulary]`` graphs by motif over all agents; ``[agents, vocabulary]`` who has which on its list.

    A list is whatever count, noise and all, is ``support`` or more: read off what was noised already.

    Raises:
        HostileMessage: for counts that are none.
    """
    each = torch.stack([count_of(values, length) for values in uploads.values()])
    return each.sum(0), each > settings.support - 0.5  # without noise the counts are whole


def prototypes(
    total: Mapping[str, Tensor], count: Tensor, settings: FairGraphFLBoundedSettings
) -> tuple[Tensor, Tensor]:
    """``[vocabulary, hidden]`` and which of them are known: all of it made from what was noised already.

    Raises:
        HostileMessage: for a total that is none.
    """
    shares = kept.numbers_in(total, "rows", (len(count), settings.hidden), "the agents' sums")
    known = count >= settings.least_count
    mean = shares.double() / SHARE / count.clamp(min=settings.least_count)[:, None]
    mean = mean / mean.norm(dim=1, keepdim=True).clamp(min=1)  # no mean of clipped embeddings is longer
    return torch.where(known[:, None], settings.clip * mean, 0.0).float(), known.to(torch.uint8)


COUNTS = f"{kept.OWN}counts"
"""``[motifs]`` in how many graphs of all agents each motif is, noise and all."""


class FairGraphFLBounded(FairGraphFL):
    """FairGraphFL whose motif lists and prototypes noise can protect for one graph.

    Agents answer graph by graph: a clipped embedding, and which motifs of a public list the graph has. The
    client's door adds up, so one graph moves what leaves it by a bounded part. Embeddings are those of the
    seeded model that all start from, so lists and prototypes are released once a run.

    Guarantees:
        - one graph moves an agent's counts by ``sqrt(motifs_per_graph)`` graphs and its sums by that times
          ``clip``, whatever the other graphs are;
        - under ``local_dp`` every channel is noised, so a run has a finite epsilon for a graph.
    Needs:
        - node labels so few that all possible motifs are at most 4,096.
    """

    name = "fairgraphfl-bounded"
    summary = "FairGraphFL whose motif lists and prototypes noise protects for each graph"
    moments_on_sums = True
    Settings: ClassVar[type[Settings]] = FairGraphFLBoundedSettings
    settings: FairGraphFLBoundedSettings

    MOTIF_LISTS = Channel("motif_lists", Reveal.EACH, Unit.GRAPH, why=OF_DIVERSITY)
    MOTIF_COUNTS = Channel("motif_counts", Reveal.SUM, Unit.GRAPH)
    MOTIF_SUMS = Channel("motif_sums", Reveal.SUM, Unit.GRAPH)

    @MOTIF_LISTS.answer
    def motif_lists(self, client: ClientContext, given: State) -> ContributionRows:
        """Each of the agent's graphs, once for each of its motifs, to be read agent by agent."""
        return counts(client, self.settings)

    @MOTIF_COUNTS.answer
    def motif_counts(self, client: ClientContext, given: State) -> ContributionRows:
        """The same, where only their sum over agents is read."""
        return counts(client, self.settings)

    @MOTIF_SUMS.answer
    def motif_sums(self, client: ClientContext, given: State) -> ContributionRows:
        """Each of the agent's graphs' embeddings, for each of its motifs."""
        model = self.model(client.schema)
        load(model, self.start(client.schema, int(given[kept.SEED])))
        return sums(client, model, self.settings)

    @property
    def _lists(self) -> NoLists:
        return CountedLists(self.settings) if _are_counted(self.settings) else super()._lists

    @property
    def _prototypes(self) -> NoPrototypes:
        bounded = self.settings.prototypes == "bounded"
        return BoundedPrototypes(self.settings) if bounded else super()._prototypes

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Counts, lists and sums once, the rest every round."""
        once = {self.MOTIF_LISTS.name, self.MOTIF_COUNTS.name, self.MOTIF_SUMS.name}
        return 1 if channel.name in once else super().uses(channel, rounds, clients)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The public seed, for embeddings by the model that all start from."""
        if channel == self.MOTIF_SUMS.name:
            return ({kept.SEED: Whole()},)
        if channel in (self.MOTIF_LISTS.name, self.MOTIF_COUNTS.name):
            return NOTHING
        return super().takes(channel, schema)


# one graph moves these without a bound, so no settings of this variant send them
_UNBOUNDED = (MOTIFS, SHARED_VOCABULARY, PROTOTYPES_OF_EACH, PROTOTYPE_SUMS, FINGERPRINTS, STRUCTURE)
FairGraphFLBounded.channels = tuple(one for one in FairGraphFLBounded.channels if one not in _UNBOUNDED)


def _are_counted(settings: FairGraphFLBoundedSettings) -> bool:
    """Whether the server reads counts agent by agent."""
    return settings.use_diversity and settings.lists == "counted"


class CountedLists(NoLists):
    """Lists that are read off counts: what ``support`` graphs or more of an agent hold, noise and all."""

    settings: FairGraphFLBoundedSettings

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The counts, agent by agent."""
        return (replace(FairGraphFLBounded.MOTIF_LISTS, unit_contribution=unit_contribution(self.settings)),)

    def exchange(self, round: RoundApi, state: State) -> State:
        """Asks for counts, once; prototypes divide by their sum."""
        (channel,) = self.channels
        counts, present = counts_of(round.gather(channel), len(state[kept.VOCABULARY]), self.settings)
        return {COUNTS: counts, kept.PRESENT: present, kept.DIVERSITY: fairness.diversity(present)}


class BoundedPrototypes(NoPrototypes):
    """Means of clipped embeddings over all agents' graphs, made of noised sums and noised counts."""

    settings: FairGraphFLBoundedSettings

    def __init__(self, settings: FairGraphFLBoundedSettings) -> None:
        super().__init__(settings)
        one = unit_contribution(settings)
        self._counts = replace(FairGraphFLBounded.MOTIF_COUNTS, unit_contribution=one)
        self._sums = replace(FairGraphFLBounded.MOTIF_SUMS, unit_contribution=one)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The sums, and the counts where lists do not bring them."""
        return (self._sums,) if _are_counted(self.settings) else (self._counts, self._sums)

    def learn(self, round: RoundApi, state: State) -> State:
        """Sums over counts (Eq. 12, by graphs instead of values), asked for once."""
        if kept.PROTOTYPES in state:
            return {}
        counts = state.get(COUNTS)
        if counts is None:
            counts = count_of(round.reduce(self._counts).total, len(state[kept.VOCABULARY]))
        total = round.reduce(self._sums, given={kept.SEED: int(state[kept.SEED])}).total
        made, known = prototypes(total, counts, self.settings)
        return {kept.PROTOTYPES: made, kept.KNOWN: known, COUNTS: counts}

    def distance(self, client: ClientContext, given: Mapping[str, Any]) -> Distance | None:
        """Of every motif that a graph holds, chosen or not; embeddings are clipped as in the prototypes."""
        s = self.settings
        if kept.PROTOTYPES not in given or not s.regularisation:
            return None
        held = motifs.holds(client, s)
        motif_count = held.shape[1]
        distance = distance_to(client, given, held, torch.arange(motif_count), motif_count, s)
        return lambda embedded, rows: distance(clipped(embedded, s.clip), rows)
