"""Sums over graphs of which one graph moves a bounded part: embeddings and counts by motif."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from secure_fedgraph.algorithms.fairgraphfl import motifs
from secure_fedgraph.algorithms.fairgraphfl.channels import SHARE
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLBoundedSettings
from secure_fedgraph.algorithms.fairgraphfl.state import numbers_in
from secure_fedgraph.core.channel import UnitContribution
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.upload import ContributionRows
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.seams import ClientContext

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
    shares = numbers_in(total, "count", (length, 1), "the agents' counts")
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
    shares = numbers_in(total, "rows", (len(count), settings.hidden), "the agents' sums")
    known = count >= settings.least_count
    mean = shares.double() / SHARE / count.clamp(min=settings.least_count)[:, None]
    mean = mean / mean.norm(dim=1, keepdim=True).clamp(min=1)  # no mean of clipped embeddings is longer
    return torch.where(known[:, None], settings.clip * mean, 0.0).float(), known.to(torch.uint8)
