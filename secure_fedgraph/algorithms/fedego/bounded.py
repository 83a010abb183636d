"""FedEgo's bounded mashes: from a table of occurrences that is drawn once, one node moves a known part."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from secure_fedgraph.algorithms.fedego.settings import FedEgoNodeSettings
from secure_fedgraph.algorithms.fedego.state import EgoModel
from secure_fedgraph.errors import HostileMessage
from secure_fedgraph.graph.sample.ego_graphs import ego_table, level_sizes
from secure_fedgraph.models.ego.mash import LEAST, cap_occurrences, one_hot
from secure_fedgraph.protocol import ContributionTrees, UnitContributionTrees
from secure_fedgraph.seams import ClientContext

OCCURRENCES = "frozen occurrences"
"""An entry of a client's memory that never goes back: who stands where, drawn once."""


def reach(settings: FedEgoNodeSettings) -> float:
    """S: the length of one node's row, reduced features and label."""
    return math.hypot(settings.clip, settings.label_clip)


def most(settings: FedEgoNodeSettings) -> tuple[int, ...]:
    """How often a node occurs at each level: once as a centre."""
    return (1, *(settings.caps or level_sizes(settings.fanout)[1:]))


def unit_contribution(settings: FedEgoNodeSettings) -> UnitContributionTrees:
    """What one node touches of a client's mashes: ``Delta = norm * sqrt(rows)``."""
    return UnitContributionTrees(
        reach(settings) / settings.batch,
        settings.reduction == "frozen",
        fanout=settings.fanout,
        most=most(settings),
        batches=settings.mashes,
        trees=settings.batch,
        filled=settings.filled,
    )


# --- in a client


def table(client: ClientContext, settings: FedEgoNodeSettings) -> Tensor:
    """``[mashes, n, positions]``: who stands where, drawn once and kept (rules R1 to R3).

    A mash mixes ``n`` ego-graphs or is empty: where training nodes run out, the rest are, so that their
    number is public.
    """
    if OCCURRENCES not in client.memory:
        pool, n = client.graph.train_mask.nonzero().flatten(), settings.batch
        whole = min(len(pool) // n, settings.mashes)
        centres = pool[client.secret_order(len(pool))[: whole * n]].view(whole, n)
        egos = ego_table(
            client.graph,
            settings.fanout,
            generator=client.generator("stable egos"),
            slots="stable",
            priorities=client.link_priorities,
        )
        rows = torch.full((settings.mashes, n, egos.shape[1]), -1)
        rows[:whole] = cap_occurrences(
            egos[centres], settings.fanout, most(settings), min(LEAST, n), settings.filled
        )
        client.memory[OCCURRENCES] = rows.to(torch.int32)
    occurrences: Tensor = client.memory[OCCURRENCES]
    return occurrences


def mashes(client: ClientContext, model: EgoModel, settings: FedEgoNodeSettings) -> ContributionTrees:
    """Every node's share of a mash, and where it stands; the door clips and mixes."""
    model.eval()
    with torch.no_grad():
        # dense whatever the features are: which product is taken must not depend on one node
        reduced = model.reduction(client.graph.x)
    labels = settings.label_clip * one_hot(client.graph.y, client.schema.classes)
    return ContributionTrees(
        {"rows": reduced / settings.batch, "labels": labels / settings.batch}, table(client, settings)
    )


# --- at the server


def opened(pile: Mapping[str, Tensor], settings: FedEgoNodeSettings, name: str) -> dict[str, Tensor]:
    """Sums over trees as mashes ``[mashes, positions, width]``, with labels of length 1 again.

    Raises:
        HostileMessage: for sums that are none.
    """
    shape = (settings.mashes, sum(level_sizes(settings.fanout)))
    try:
        piles = {key: value.reshape(*shape, value.shape[1]) for key, value in pile.items()}
        return {**piles, "labels": piles["labels"] / settings.label_clip}
    except (RuntimeError, IndexError, KeyError):
        raise HostileMessage(f"the mashes of {name} are not {shape[0]} of {shape[1]} positions") from None
