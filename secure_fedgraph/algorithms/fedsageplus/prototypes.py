"""FedSage+ without an exchange of gradients: each owner adds once to sums of features by class.

A record is a training node: its features' direction with a constant beside it, ``z`` of length 1, and its
class ``t``, a unit vector. What is released is ``sum z t^T`` over all owners' records: by class a sum of
directions and a count. Removing one node takes one record out, so it moves the sums by at most 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsageplus.settings import GeneratorSettings
from secure_fedgraph.core.channel import UnitContributionMoments
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.upload import ContributionMoments, moments_of
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.neighgen.mixture import class_records, prototypes_of
from secure_fedgraph.seams import ClientContext, Total

PREFIX = "prototypes."
ROWS, COUNTS = PREFIX + "rows", PREFIX + "counts"
"""What the server releases: mean directions ``[classes, features]``, and counts ``[classes]``."""
KEPT = "prototypes"
"""The memory entry with the rows of the classes that are known."""
DONE = "released "
"""Before a channel's name: the memory entry of what is answered once. A failed answer does not undo it."""
LEAST_NOISE = 0.25
"""Times what one node moves: the least noise on a sum that counts as some."""


def contribution(settings: GeneratorSettings) -> UnitContributionMoments:
    """What one record moves of the sums."""
    return UnitContributionMoments(targets=1.0, records=settings.records, second=False)


def check_noise(noise: float, settings: GeneratorSettings) -> None:
    """That noise hides something, since under any noise no class is left out for being small.

    Args:
        noise: standard deviation on each value of the sum of all owners' uploads.

    Raises:
        BadInput: for less than :data:`LEAST_NOISE` times what one node moves.
    """
    times = noise * settings.records
    if 0 < times < LEAST_NOISE:
        raise BadInput(
            f"feature_sums: its noise is {times:.2g} times what one node moves, which hides no node, and "
            f"with noise small classes are sent too. Raise it to {LEAST_NOISE} or more (--unit node "
            "--epsilon, or protection.multiplier.feature_sums), or take a policy without noise on it, such "
            "as masked, which leaves small classes out"
        )


def once(client: ClientContext, channel: str) -> None:
    """Sums are released once, in round 1, and prototypes are given once after it.

    Raises:
        HostileMessage: for a second ask, and in any other round.
    """
    if client.round != 1 or DONE + channel in client.memory:
        raise HostileMessage(
            f"{client.name} was asked on {channel!r} in round {client.round}, and answers on it once, in "
            "round 1"
        )
    client.memory[DONE + channel] = 1


def records_of(client: ClientContext, settings: GeneratorSettings, noised: bool) -> ContributionMoments:
    """An owner's records.

    Args:
        noised: whether noise covers what one record moves. Without it a class of fewer than ``anonymity``
            training nodes is left out; with it nothing is, since whether a class is left out would depend on
            all its nodes together.
    """
    graph, classes = client.graph, client.schema.classes
    nodes = graph.train_mask.nonzero().flatten()
    labels = graph.y[nodes]
    if not noised:
        enough = torch.bincount(labels, minlength=classes) >= settings.anonymity
        nodes, labels = nodes[enough[labels]], labels[enough[labels]]
    return ContributionMoments(class_records(graph.x[nodes]), F.one_hot(labels, classes).float())


def nothing_known(schema: Schema) -> State:
    """Before the release."""
    return {ROWS: torch.zeros(schema.classes, schema.features), COUNTS: torch.zeros(schema.classes)}


def released(opened: Total, settings: GeneratorSettings) -> State:
    """The prototypes of an opened sum; a class whose count is below ``anonymity`` has none.

    The counts and rows are computed from the opened sum and the public deviation of its noise alone.
    """
    of = contribution(settings)
    _, sums = moments_of(opened.total, of)
    rows, counts = prototypes_of(sums.T, opened.deviation * of.records)
    # what comes off a grid lies a little beside the whole number
    known = counts > settings.anonymity - 0.5
    return {
        ROWS: torch.where(known[:, None], rows, 0.0).float(),
        COUNTS: torch.where(known, counts, 0.0).float(),
    }


def keep(client: ClientContext, given: Mapping[str, Any]) -> None:
    """Keeps the prototypes of the classes that are known.

    Means of directions are no longer than 1. Longer rows are shortened to it, whoever made them so: noise, or
    a server that lies.
    """
    rows = given[ROWS][given[COUNTS] > 0].double()
    client.memory[KEPT] = (rows / rows.norm(dim=1, keepdim=True).clamp(min=1)).float()


def at_home(client: ClientContext) -> Tensor:
    """The prototypes at the length of the owner's own features, ``[k, features]``.

    An owner that was not given any, or for which no class is known, takes the mean of its own nodes.
    """
    x = client.graph.x
    rows: Tensor = client.memory.get(KEPT, x[:0])
    made: Tensor = rows * x.norm(dim=1).mean() if len(rows) else x.mean(0, keepdim=True)
    return made
